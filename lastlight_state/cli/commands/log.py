"""``log``: prints the agent's event log of a run, an execution or a session as lines, and may follow it. Never writes.

With ``--events`` it prints the run's journal instead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

import click

from lastlight_state.cli import opening
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.views import logs
from lastlight_state.cli.views.logs import Source, source_of
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.files.agent_log import AgentLog, LogLine, LogPage
from lastlight_state.files.jsonl.follow import Reset

PAGE = 500


@command("log")
@click.argument("key", metavar="ID")
@click.option("--events", is_flag=True, help="Of a run: the events of its journal, instead of what its agents said.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until all of it has ended.")
@click.option("--limit", metavar="N", type=int, help="Of each session only the last N, 1 to 500.")
@click.option("--raw", is_flag=True, help="The lines as they stand in the file, byte for byte.")
@click.option("--type", "types", metavar="WORD", multiple=True, help="Only these types; may be given several times.")
def run(call: Call, key: str, events: bool, follow: bool, limit: int | None, raw: bool, types: Sequence[str]) -> Answer:
    """Print the event log of a run (all its sessions), an execution or an agent session, one line per record.

    With --json each record is an object on its own line. The last object counts the printed records and the unreadable
    lines, and names the files. --follow ends when the run or execution has ended. The log of a session is followed
    until you stop it.
    """
    if limit is not None:
        valid.page_limit(limit)
    if events:
        if raw:
            raise InvalidValue("--raw", "must not be given with --events: they are no lines of a file")
        key = read_once(call, lambda store: opening.whole(store, key, "run"))
        return _print_events(call, logs.Events(call, key, types), last=limit, follow=follow)
    printer = _Printer(call, raw=raw, types=frozenset(types) if types else None)
    source = source_of(call, key)
    for session_id in source.sessions(wait=follow):
        if not printer.begin(source, session_id):
            continue
        cursor = printer.print_records(source.log, session_id, limit)
        if follow:
            printer.follow(source, session_id, cursor)
    return printer.end()


def _print_events(call: Call, events: logs.Events, *, last: int | None, follow: bool) -> Answer:
    output, count = call.output, 0
    for event in events.read(last=last, follow=follow):
        count += 1
        output.line({"event": event} if call.flags.json else logs.event_text(event, output.screen))
    if events.damaged:
        output.note(f"{events.damaged} events could not be read")
    if call.flags.json:
        output.line({"records": count, "skipped": events.damaged, "files": []})
    elif not count:
        output.note("(no records)")
    return Answer()


class _Printer:
    """Prints records as they are read, and counts them."""

    def __init__(self, call: Call, *, raw: bool, types: frozenset[str] | None) -> None:
        self._call = call
        self._raw = raw
        self._types = types
        self._records = 0
        self._skipped: Counter[str] = Counter()
        self._files: list[str] = []

    def begin(self, source: Source, session_id: str) -> bool:
        """Note the file that the next records come from. Returns False for an id that cannot be a log's name."""
        try:
            found = source.log.sessions.find(session_id)
        except UnsafePath as error:
            self._call.output.note(f"session {session_id}: no log ({error})")
            return False
        if found is not None:
            self._files.append(str(found.path))
            self._call.output.note(f"session {session_id}: {found.path}")
        else:
            self._call.output.note(f"session {session_id}: no log")
        return True

    def print_records(self, log: AgentLog, session_id: str, limit: int | None) -> str | None:
        """Print the records written so far. Returns the cursor after them, or None if there is no log."""
        cursor: str | None = None
        kept: deque[LogLine] = deque(maxlen=limit)
        for page in _pages(log, session_id, limit if self._types is None else None):
            cursor = page.cursor
            self._skipped.update(issue.reason for issue in page.issues)
            chosen = [line for line in page.lines if self._types is None or line.type in self._types]
            kept.extend(chosen)
            if limit is None:
                self._print_all(session_id, kept)
        self._print_all(session_id, kept)
        return cursor

    def follow(self, source: Source, session_id: str, cursor: str | None) -> None:
        """Print new records until the source's stop event is set."""
        stop = source.until(session_id)
        for news in source.log.reader.follow(session_id, after=cursor, stop=stop):
            if isinstance(news, Reset):
                self._call.output.note(f"session {session_id}: the file was {news.reason}, it begins again")
            elif self._types is None or news.type in self._types:
                self._print(session_id, news)

    def end(self) -> Answer:
        """Print the counts, with ``--json`` as the last object, and return the command's answer."""
        skipped = sum(self._skipped.values())
        if skipped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._skipped.items()))
            self._call.output.note(f"{skipped} lines could not be read: {reasons}")
        if not self._raw and self._call.flags.json:
            self._call.output.line({"records": self._records, "skipped": skipped, "files": self._files})
        elif not self._records:
            self._call.output.note("(no records)")
        return Answer()

    def _print_all(self, session_id: str, lines: deque[LogLine]) -> None:
        while lines:
            self._print(session_id, lines.popleft())

    def _print(self, session_id: str, line: LogLine) -> None:
        self._records += 1
        output = self._call.output
        if self._raw:
            output.raw_line(line.raw)
        elif self._call.flags.json:
            output.line({"session_id": session_id, "offset": line.offset, "record": line.value})
        else:
            output.line(logs.text_of(line, output.screen))


def _pages(log: AgentLog, session_id: str, last: int | None) -> Iterator[LogPage]:
    """Yield the ``last`` lines as one page, or all pages in order. Without a log, yield nothing."""
    if log.sessions.find(session_id) is None:
        return
    if last is not None:
        yield log.reader.tail(session_id, n=last)
        return
    cursor, at_end = None, False
    while not at_end:
        page = log.reader.read(session_id, after=cursor, limit=PAGE)
        cursor, at_end = page.cursor, page.at_end
        yield page
