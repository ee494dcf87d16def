"""``prune``: deletes what ended long ago, with an exact dry run and a receipt that is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from lastlight_state import progress
from lastlight_state.cli import arguments
from lastlight_state.cli.exits import STOPPED, Failure
from lastlight_state.cli.opening import read_once, writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance import PrunePlan, PrunePolicy
from lastlight_state.maintenance.prune.arguments import LINE_BYTES, LINE_FILES
from lastlight_state.maintenance.prune.checks import ALL
from lastlight_state.receipts import Receipt
from lastlight_state.store import StateStore

COUNTS: tuple[Column[tuple[str, int]], ...] = (
    Column("TABLE", lambda row: row[0]),
    Column("ROWS", lambda row: row[1], right=True),
)
#: What a prune removes, in words, for kinds that are not simply counted in records with all their rows.
AMOUNTS = {
    "exchange": "{rows} of {records} inboxes",
    "changes": "{rows} of {records} feeds",
    "journal": "{rows} of {records} runs",
    "cache": "{records} entries of the cache",
    "checkpoints": "{records} threads of checkpoints with all their {rows}",
    "states": "{records} states that have expired",
    "workers": "{records} workers that are gone",
}
PROTECTED: tuple[Column[tuple[str, int]], ...] = (
    Column("STAYS BECAUSE", lambda row: row[0]),
    Column("RECORDS", lambda row: row[1], right=True),
)


@command("prune")
@click.option("--kind", metavar="KIND", help=f"What to remove: {', '.join(ALL)}; sessions unless it is given.")
@click.option("--keep-days", metavar="N", type=int, help="Keep what ended in the last N days; each kind has its own.")
@click.option("--keep-n", metavar="N", type=int, help="Keep the N that ended last; each kind has its own.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Only this one, if it may go; several times.")
@click.option("--archive", metavar="DIR", help="Write each run or session into this folder before it is removed.")
@click.option("--with-logs", is_flag=True, help="Remove the logs of agents that are in these files, too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--time-limit", metavar="SECONDS", type=float, help="Stop after this time; exit code 7, and --resume.")
@click.option("--resume", metavar="RECEIPT", help="Go on with a prune that was interrupted.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run(call: Call, resume: str | None, dry_run: bool, time_limit: float | None, yes: bool, **policy: Any) -> Answer:
    """Remove what ended long ago and is no longer needed. Each record is removed with everything that belongs to it.

    Nothing that runs, waits or is referred to is removed. This cannot be undone. A receipt says how many rows of which
    table were removed. --resume continues an interrupted prune.
    """
    if resume is not None:
        _refuse_policy(**policy, dry_run=dry_run)
        arguments.ask(f"Go on with the prune of receipt {resume}?", yes=yes)
        return _run_prune(call, lambda store: store.maintenance.prune.resume(resume, time_limit=time_limit))
    asked = _policy(**policy, time_limit=time_limit)
    plan = read_once(call, lambda store: store.maintenance.prune.plan(asked))
    if dry_run:
        data = {"dry_run": True, **plan.model_dump(), "receipt": None}
        return Answer(data, lambda screen: _plan_lines(plan, screen))
    if plan.records:
        arguments.ask(f"Remove {_amount(plan)}?", yes=yes)
    progress.tell("prune", 0, sum(plan.counts.values()))
    return _run_prune(call, lambda store: store.maintenance.prune.run(asked), plan)


def _policy(kind: str | None, ids: Sequence[str], *, with_logs: bool, **more: Any) -> PrunePolicy:
    given = PrunePolicy.kind if kind is None else kind
    return PrunePolicy(given, ids=ids or None, with_logs="yes" if with_logs else "no", **more)


def _refuse_policy(**given: Any) -> None:
    """Raise `InvalidValue` if flags of a policy are given together with --resume."""
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            flag = "--id" if name == "ids" else f"--{name.replace('_', '-')}"
            raise InvalidValue(flag, "must not be given with --resume: the receipt has it")


def _run_prune(call: Call, work: Callable[[StateStore], Receipt], plan: PrunePlan | None = None) -> Answer:
    with writable_store(call) as store:
        receipt = work(store)
    data = {"dry_run": False, **(plan.model_dump() if plan else {}), "counts": receipt.counts, "receipt": receipt}
    failure = None
    if receipt.state != "done":
        again = store.backend.command("prune", "--resume", receipt.id)
        text = f"stopped at the time limit; to go on: {again}"
        failure = Failure(STOPPED, "time_limit", text, {"receipt_id": receipt.id})
    return Answer(data, lambda screen: _receipt_lines(receipt, screen), failure)


def _plan_lines(plan: PrunePlan, screen: Screen) -> Iterator[Any]:
    yield f"would remove {_amount(plan)}"
    yield from _table(screen, COUNTS, _tables(plan.counts))
    yield from _table(screen, PROTECTED, plan.protected)


def _receipt_lines(receipt: Receipt, screen: Screen) -> Iterator[Any]:
    yield f"receipt {receipt.id}: {receipt.state}, {_together(receipt.counts)} removed"
    yield from _table(screen, COUNTS, _tables(receipt.counts))


def _table(screen: Screen, columns: tuple[Column[tuple[str, int]], ...], counts: Mapping[str, int]) -> Iterator[Any]:
    if counts:
        yield ""
        yield from screen.table(columns, list(counts.items()))


def _amount(plan: PrunePlan) -> str:
    rows = _together(plan.counts)
    amount = AMOUNTS.get(plan.kind, "{records} {kind} with {rows}")
    return amount.format(records=plan.records, kind=plan.kind, rows=rows)


def _tables(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of rows by table, without the counts of log files."""
    return {name: count for name, count in counts.items() if name not in (LINE_FILES, LINE_BYTES)}


def _together(counts: Mapping[str, int]) -> str:
    """Return the total number of rows and log files as a phrase."""
    rows, files = sum(_tables(counts).values()), counts.get(LINE_FILES, 0)
    logs = f"{files} log files of {counts.get(LINE_BYTES, 0)} bytes"
    return " and ".join([*([f"{rows} rows"] if rows or not files else []), *([logs] if files else [])])
