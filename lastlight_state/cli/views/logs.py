"""Logs as text for people: finds the log that belongs to an id, and converts its events and records to lines."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any

from rich.text import Text

from lastlight_state import codec
from lastlight_state.cli import opening
from lastlight_state.cli.opening import read_once, settings_of
from lastlight_state.cli.output import Call
from lastlight_state.cli.screen import GAP, Screen
from lastlight_state.db.lists.pages import pages_of
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog, LogLine, LogMessage
from lastlight_state.files.agent_log.messages import messages_of
from lastlight_state.files.jsonl.follow import Stop
from lastlight_state.files.run_log import PromptTurn, RunRecord
from lastlight_state.journal import Event, EventFilter
from lastlight_state.plain import plain
from lastlight_state.store import StateStore
from lastlight_state.workflows import ExecutionSummary
from lastlight_state.workflows.words import TERMINAL

# A record of an event log as one line for people: its time, its kind, and the beginning of its text.

SHORT = 160
#: A cost above this is not believed: its digits would fill the screen.
_MOST_COST = 1e15
KIND_WIDTH = 9

_STYLES = {"user": "bold", "tool": "dim", "result": "green", "error": "red"}


def text_of(line: LogLine, screen: Screen) -> Text:
    """Convert a record to the line that shows it."""
    kind, said = _kind_and_text(line)
    when = screen.format_value(line.timestamp) if line.timestamp else "-" * 24
    marked = f"{screen.format_value(kind[:SHORT]):<{KIND_WIDTH}}"
    shown = screen.format_value(said if len(said) <= SHORT else f"{said[:SHORT]}… [{len(said):,} characters]")
    return Text.assemble((when, "dim"), GAP, (marked, _STYLES.get(kind, "")), GAP, shown)


def _kind_and_text(line: LogLine) -> tuple[str, str]:
    value = line.value
    if line.type == "result":
        turns, cost = value.get("num_turns", 0), value.get("total_cost_usd", 0)
        told = f"${cost:.4f}" if isinstance(cost, int | float) and abs(cost) < _MOST_COST else f"cost {cost!r:.40}"
        return "result", f"{value.get('subtype')}, {turns!r:.40} turns, {told}, {value.get('stop_reason') or '-'}"
    messages = messages_of(line)
    if not messages:
        return line.type or "-", str(value.get("subtype") or "")
    kind = "error" if value.get("isApiErrorMessage") is True else messages[0].role
    return kind, " ".join(part for message in messages for part in _parts(message))


def _parts(message: LogMessage) -> Iterator[str]:
    if message.is_error:
        yield "failed:"
    if message.content:
        yield str(message.content)
    for call in message.tool_calls:
        yield f"-> {call['function']['name']} {call['function']['arguments']}"


POLL_SECONDS = 0.5


class Source(ABC):
    """An ordered sequence of sessions whose logs are printed."""

    def __init__(self, log: AgentLog) -> None:
        self.log = log

    @abstractmethod
    def sessions(self, *, wait: bool) -> Iterator[str]:
        """Yield the ids of the sessions.

        With ``wait``, also yield sessions that begin later, until no more can begin.
        """

    @abstractmethod
    def until(self, session_id: str) -> Stop:
        """Return a stop event that is set once no more lines will be written to a session's log."""


def source_of(call: Call, key: str, *, pause: Callable[[float], object] = time.sleep) -> Source:
    """Return the source for an id: of a session if it has a log, else of a run or an execution. Raises `NotFound`.

    ``pause`` is called with the seconds to wait between two polls.
    """
    log = AgentLog(settings_of(call).agent_sessions)
    if _has_log(log, key):
        return _Session(log, key, pause)
    source = _Database(call, log, key, pause)
    source.look()
    return source


class _Session(Source):
    """The log of a single session, which is followed until the caller stops."""

    def __init__(self, log: AgentLog, session_id: str, pause: Callable[[float], object]) -> None:
        super().__init__(log)
        self._session_id = session_id
        self._pause = pause

    def sessions(self, *, wait: bool) -> Iterator[str]:
        yield self._session_id

    def until(self, session_id: str) -> Stop:
        return _Never(self._pause)


class _Database(Source):
    """The sessions of a run's executions, or of one execution, in the order they began."""

    def __init__(self, call: Call, log: AgentLog, key: str, pause: Callable[[float], object]) -> None:
        super().__init__(log)
        self._call = call
        self._key = key
        self.pause = pause
        self.known: list[str] = []
        self.ended = False

    def look(self) -> None:
        """Query the database again. Raises `NotFound` for an unknown id."""
        self.known, self.ended = read_once(self._call, self._find_sessions)

    def sessions(self, *, wait: bool) -> Iterator[str]:
        given = 0
        while True:
            while given < len(self.known):
                given += 1
                yield self.known[given - 1]
            if not wait or self.ended:
                return
            self.pause(POLL_SECONDS)
            self.look()

    def until(self, session_id: str) -> Stop:
        return _UntilOver(self, session_id)

    def _find_sessions(self, store: StateStore) -> tuple[list[str], bool]:
        try:
            kind, self._key = opening.resolve(store, self._key, ("run", "execution"))
        except NotFound:
            raise NotFound("run, execution or session", self._key) from None
        if kind == "execution":
            execution = store.workflows.executions.get(self._key)
            return _session_ids([execution]), execution.outcome != "running"
        ended = store.workflows.runs.get(self._key).status in TERMINAL
        return _session_ids(_all_of(store, self._key)), ended


class _Never:
    """A stop event that is never set."""

    def __init__(self, pause: Callable[[float], object]) -> None:
        self._pause = pause

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> None:
        self._pause(timeout)


class _UntilOver:
    """A stop event.

    It is set when another session has begun or all have ended, and the log was read once more after that.
    """

    def __init__(self, source: _Database, session_id: str) -> None:
        self._source = source
        self._session_id = session_id
        self._over = self._is_over()
        self._looked_since = False

    def is_set(self) -> bool:
        return self._over and self._looked_since

    def wait(self, timeout: float) -> None:
        if self._over:
            self._looked_since = True
            return
        self._source.pause(timeout)
        self._source.look()
        self._over = self._is_over()

    def _is_over(self) -> bool:
        return self._source.ended or self._source.known[-1:] != [self._session_id]


def _has_log(log: AgentLog, key: str) -> bool:
    try:
        return log.sessions.find(key) is not None
    except UnsafePath:  # not a valid name of a log, but perhaps the id of a run
        return False


def _all_of(store: StateStore, run_id: str) -> list[ExecutionSummary]:
    """Return all executions of a run, oldest first."""
    pages = pages_of(store.workflows.executions.list, run_id=run_id, limit=500)
    return [execution for page in pages for execution in page.items][::-1]


def _session_ids(executions: list[ExecutionSummary]) -> list[str]:
    return list(dict.fromkeys(found.session_id for found in executions if found.session_id is not None))


# The events of a run, read page by page from the database, each as one line for people.

PAGE = 500

SEQ_WIDTH = 6


class Events:
    """The events of a run. ``damaged`` counts unreadable events."""

    def __init__(
        self, call: Call, run_id: str, types: Collection[str], *, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._call = call
        self._run_id = run_id
        self._where = EventFilter(types=types)
        self._pause = pause
        self._last = -1
        self.damaged = 0

    def read(self, *, last: int | None, follow: bool) -> Iterator[Event]:
        """Yield the stored events, or only the ``last`` ones. With ``follow``, go on until the run has ended.

        Raises `NotFound` for an unknown run.
        """
        ended = self._has_ended()
        if last is not None:
            yield from self._newest(last)
        yield from self._stored_events()
        while follow and not ended:
            self._pause(POLL_SECONDS)
            ended = self._has_ended()
            yield from self._stored_events()

    def _newest(self, count: int) -> Iterator[Event]:
        yield from self._page(limit=count, order="newest_first").items[::-1]

    def _stored_events(self) -> Iterator[Event]:
        """Return the stored events after the last one that was read."""
        more = True
        while more:
            found = self._page(limit=PAGE, after_seq=self._last)
            more = found.next_page_token is not None
            yield from found.items

    def _page(self, **given: Any) -> Page[Event]:
        def work(store: StateStore) -> Page[Event]:
            return store.journal.events.list(self._run_id, where=self._where, **given)

        found = read_once(self._call, work)
        self.damaged += len(found.damaged)
        read = [event.seq for event in found.items] + [row.key[-1] for row in found.damaged]
        self._last = max([self._last, *read])
        return found

    def _has_ended(self) -> bool:
        return read_once(self._call, lambda store: store.workflows.runs.get(self._run_id).status in TERMINAL)


def event_text(event: Event, screen: Screen) -> Text:
    """Convert an event to the line that shows it."""
    payload = screen.format_value(event.payload) if event.payload else ""
    shown = payload if len(payload) <= SHORT else f"{payload[:SHORT]}… [{len(payload):,} characters]"
    return Text.assemble(
        (screen.format_value(event.occurred_at), "dim"),
        f"{GAP}{event.seq:>{SEQ_WIDTH}}{GAP}",
        (screen.format_value(event.type), "bold"),
        GAP + shown if shown else "",
    )


# Records, prompts and messages of run logs: as lines for people, or as objects for programs.

_TYPE_WIDTH, _ROLE_WIDTH = 12, 9
#: Fields of a record that every line has, or that people do not need.
_COMMON = frozenset({"type", "run_id", "session_id", "ts", "meta", "schema_version", "started_at"})


def format_record(record: RunRecord, call: Call) -> Any:
    """Convert a record to a line, or with ``--json`` to an object."""
    value = record.to_json()
    if call.flags.json:
        return {"record": value, "recovered": record.recovered}
    screen = call.output.screen
    told = {name: part for name, part in value.items() if name not in _COMMON}
    when = value.get("ts") or value.get("started_at")
    return _line(screen, when if isinstance(when, str) else "-", record.type, _TYPE_WIDTH, told)


def of_turn(turn: PromptTurn, call: Call) -> Iterator[Any]:
    """Return the lines or objects that show one call of a model: its prompt and its answer."""
    request, response = turn.request.to_json(), turn.response.to_json() if turn.response else None
    if call.flags.json:
        yield {"seq": turn.seq, "request": request, "response": response}
        return
    screen = call.output.screen
    yield screen.heading(f"prompt {turn.seq}{'' if turn.response else ' (no answer)'}")
    answer = turn.response.output.messages if turn.response else ()
    yield from (of_message(message, screen) for message in (*turn.request.input.messages, *answer))


def of_message(message: dict[str, Any], screen: Screen) -> Text:
    """Convert a message of a prompt or history to the line that shows it."""
    told = {name: part for name, part in message.items() if name != "role" and part is not None}
    only = told.get("content") if told.keys() == {"content"} else told
    role = message.get("role")
    return _line(screen, None, role if isinstance(role, str) else "-", _ROLE_WIDTH, only)


def _line(screen: Screen, when: str | None, kind: str, width: int, told: Any) -> Text:
    text = told if isinstance(told, str) else codec.encode_sound(plain(told)).decode()
    short = screen.format_value(text if len(text) <= SHORT else f"{text[:SHORT]}… [{len(text):,} characters]")
    marked = f"{screen.format_value(kind[:SHORT]):<{width}}"
    line = Text.assemble((marked, "bold"), GAP, short)
    return line if when is None else Text.assemble((screen.format_value(when[:SHORT]), "dim"), GAP, line)
