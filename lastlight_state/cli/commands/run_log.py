"""``run-log``: lists, reads, replays, checks, packs and removes the logs of runs. Needs no database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import settings_of
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views import logs
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.files.run_log import Finding, PruneReport, Report, RunEntry, RunLog, RunPage

#: Seconds between two polls of ``tail --follow``.
POLL = 0.5
_MOST_DAYS = 100_000

RUNS: tuple[Column[RunEntry], ...] = (
    Column("ID", lambda run: run.run_id, is_id=True),
    Column("SESSION", lambda run: run.session_id, is_id=True, rank=3),
    Column("STATE", lambda run: run.state),
    Column("OUTCOME", lambda run: run.outcome),
    Column("STARTED", lambda run: run.started_at, keep=True),
    Column("MODEL", lambda run: run.model_name, rank=2),
    Column("BYTES", lambda run: run.size_bytes, right=True, rank=1),
    Column("INPUT", lambda run: run.input_preview),
)
FINDINGS: tuple[Column[Finding], ...] = (
    Column("SEVERITY", lambda finding: finding.severity),
    Column("CODE", lambda finding: finding.code, keep=True),
    Column("LINE", lambda finding: finding.line, right=True),
    Column("OFFSET", lambda finding: finding.offset, right=True),
    Column("TEXT", lambda finding: finding.text, below=True),
)


class Arguments:
    """The parsed arguments of a ``run-log`` command line, and the run log to which they apply."""

    def __init__(self, call: Call, log: RunLog, key: str | None, options: dict[str, Any]) -> None:
        self.call = call
        self.log = log
        self.options = options
        self._key = key

    @property
    def run_id(self) -> str:
        """Return the run id that the arguments name. Raises `InvalidValue` if they name none."""
        if self._key is None:
            raise InvalidValue("ID", "must be given: the id of a run")
        return self._key


@command("run-log")
@click.argument("action", metavar="ls|show|tail|replay|validate|salvage|pack|prune")
@click.argument("key", metavar="[ID]", required=False)
@click.option("--session", metavar="ID", help="With ls and prune: only runs of this session.")
@click.option("--state", metavar="WORD", help="With ls: only running, crashed, unknown or ended ones.")
@click.option("--limit", metavar="N", default=50, help="With ls: the number of runs on a page, 1 to 500.")
@click.option("--page-token", metavar="TOKEN", help="With ls: go on where the page before ended.")
@click.option("--follow", is_flag=True, help="With tail: go on with what comes, until the run's writer is gone.")
@click.option("--last", metavar="N", type=int, help="With tail: begin with the last N records, 1 to 500.")
@click.option("--to", metavar="FILE", type=click.Path(path_type=Path), help="With salvage: the clean copy.")
@click.option("--keep-days", metavar="N", default=30, help="With prune: days that logs are kept after their end.")
@click.option("--dry-run", is_flag=True, help="With prune: only tell what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="With prune: do not ask.")
def run(call: Call, action: str, key: str | None, **options: Any) -> Answer:
    """Work on the logs of runs: list them, summarise one, print its records or prompts, check it, copy it clean.

    With tail and replay, --json gives an object on its own line per record or prompt, and a last object with the
    counts. With validate, errors give exit code 1. pack replaces the log of an ended run by a gzip file. prune removes
    logs that ended long ago. No other action changes a log.
    """
    work = ACTIONS[valid.word("ACTION", action, ACTIONS)]
    return work(Arguments(call, RunLog(settings_of(call).anchored().run_logs), key, options))


def _ls(asked: Arguments) -> Answer:
    names = {"session": "session_id", "state": "state", "limit": "limit", "page_token": "page_token"}
    page = asked.log.runs.list(**{names[name]: value for name, value in asked.options.items() if name in names})
    data = {"items": page.items, "next_page_token": page.next_page_token, "skipped": page.skipped}
    return Answer(data, lambda screen: _page(page, screen))


def _show(asked: Arguments) -> Answer:
    digest = asked.log.replay.summarise(asked.run_id)
    shown = {name: getattr(digest, name) for name in type(digest).model_fields if name not in ("header", "damage")}
    usage = {model: totals.model_dump() for model, totals in digest.usage.items()}
    return Answer(
        {"run": digest.model_dump(), "path": asked.log.runs.path(asked.run_id)},
        lambda screen: screen.fields(shown | {"usage": usage, "path": asked.log.runs.path(asked.run_id)}),
    )


def _tail(asked: Arguments) -> Answer:
    records, cursor = 0, None
    while True:
        if cursor is None and asked.options["last"] is not None:
            chunk = asked.log.runs.last(asked.run_id, n=asked.options["last"])
        else:
            chunk = asked.log.runs.tail(asked.run_id, after=cursor)
        for record in chunk.records:
            records += 1
            asked.call.output.line(logs.format_record(record, asked.call))
        cursor = chunk.cursor
        if chunk.at_end and not (asked.options["follow"] and chunk.live):
            break
        if chunk.at_end:
            time.sleep(POLL)
    return _count_answer(asked, "records", records)


def _replay(asked: Arguments) -> Answer:
    prompts = 0
    for turn in asked.log.replay.prompts(asked.run_id):
        prompts += 1
        for line in logs.of_turn(turn, asked.call):
            asked.call.output.line(line)
    return _count_answer(asked, "prompts", prompts)


def _validate(asked: Arguments) -> Answer:
    report = asked.log.checks.validate(asked.run_id)
    errors = sum(finding.severity == "error" for finding in report.findings)
    failure = None if report.ok else Failure(NO, "damaged", f"{errors} errors in run {report.run_id}", {})
    return Answer({"report": report.model_dump()}, lambda screen: _findings(report, screen), failure)


def _salvage(asked: Arguments) -> Answer:
    if asked.options["to"] is None:
        raise InvalidValue("--to", "must be given: the file for the clean copy")
    done = asked.log.checks.salvage(asked.run_id, to=asked.options["to"])
    lines = [f"wrote {path}" for path in (done.copy_path, done.rejects) if path is not None]
    return Answer({"salvaged": done.model_dump()}, lambda _: lines or ["sound: nothing to do"])


def _pack(asked: Arguments) -> Answer:
    packed = asked.log.runs.pack(asked.run_id)
    path = asked.log.runs.path(asked.run_id)
    return Answer({"packed": packed, "path": path}, lambda _: [f"wrote {path}" if packed else "is packed already"])


def _prune(asked: Arguments) -> Answer:
    days = valid.number("--keep-days", asked.options["keep_days"], most=_MOST_DAYS)
    given = {"ended_before": SYSTEM_CLOCK.now() - timedelta(days=days), "session_id": asked.options["session"]}
    report = asked.log.runs.prune(**given)
    if report.run_ids and not asked.options["dry_run"]:
        arguments.ask(f"Remove the logs of {len(report.run_ids)} runs?", yes=asked.options["yes"])
        report = asked.log.runs.prune(**given, dry_run=False)
    return Answer({"pruned": report.model_dump()}, lambda _: _prune_lines(report))


def _prune_lines(report: PruneReport) -> Iterator[str]:
    done = "would remove" if report.dry_run and report.run_ids else "removed"
    yield f"{done} the logs of {len(report.run_ids)} runs, {report.size_bytes} bytes"
    if report.skipped:
        yield f"{report.skipped} could not be read, or are being written"


ACTIONS: dict[str, Callable[[Arguments], Answer]] = {
    "ls": _ls,
    "show": _show,
    "tail": _tail,
    "replay": _replay,
    "validate": _validate,
    "salvage": _salvage,
    "pack": _pack,
    "prune": _prune,
}


def _count_answer(asked: Arguments, what: str, count: int) -> Answer:
    if asked.call.flags.json:
        asked.call.output.line({what: count, "path": str(asked.log.runs.path(asked.run_id))})
    return Answer()


def _page(page: RunPage, screen: Screen) -> Iterator[Any]:
    if page.items:
        yield from screen.table(RUNS, page.items)
    else:
        yield "(no runs)"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"


def _findings(report: Report, screen: Screen) -> Iterator[Any]:
    yield f"{report.records} records, {report.finding_count} findings"
    found: tuple[Finding, ...] = report.findings
    if found:
        yield from screen.table(FINDINGS, found)
