"""``usage``: sums the cost of executions, in total and by one dimension. Never writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from lastlight_state.cli import arguments
from lastlight_state.cli.opening import read_once
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.cli.screen import Column, Screen
from lastlight_state.cli.views.money import money
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.db import valid
from lastlight_state.domains import View
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows import UsageTotals
from lastlight_state.workflows.usage import MOST_DAYS, Dimension

#: The words of ``--by`` other than day, each with its dimension.
BY: dict[str, Dimension] = {
    "workflow": "workflow",
    "model": "model",
    "repo": "repo",
    "person": "triggered_by",
    "trigger": "trigger_type",
    "skill": "skill",
}
SUMS: tuple[Column[dict[str, Any]], ...] = (
    Column("COST", lambda row: money(row["cost_usd"]), keep=True, right=True),
    Column("EXECUTIONS", lambda row: row["executions"], right=True, rank=1),
    Column("TOKENS", lambda row: f"{row['total_tokens']:,}", right=True),
    Column("IN", lambda row: f"{row['input_tokens']:,}", right=True, rank=3),
    Column("OUT", lambda row: f"{row['output_tokens']:,}", right=True, rank=2),
)


@command("usage")
@click.option("--since", metavar="TIME", help="Started since: 2026-02-03, or 7d ago as 7d; else since midnight.")
@click.option("--by", metavar="WORD", default="workflow", help=f"One of: day, {', '.join(BY)}.")
def run(call: Call, since: str | None, by: str) -> Answer:
    """Print the cost of executions that started since a time: in total, and by one dimension.

    Running executions count with what they have reported so far.
    """
    valid.word("--by", by, ["day", *BY])
    now = SYSTEM_CLOCK.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    start = arguments.moment(since, "--since") or midnight
    days = (midnight.date() - start.date()).days + 1
    if by == "day":
        if not 1 <= days <= MOST_DAYS:
            raise InvalidValue("--since", f"expected one of the last {MOST_DAYS} days for --by day")
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    totals, rows = read_once(call, lambda store: _read(store, by, start, days))
    data = {"since": start, "by": by, "total": totals, "rows": rows}
    return Answer(data, lambda screen: _lines(screen, by, start, totals, rows))


def _read(store: StateStore, by: str, start: datetime, days: int) -> tuple[UsageTotals, list[dict[str, Any]]]:
    def look(view: View) -> tuple[UsageTotals, list[dict[str, Any]]]:
        usage = view.workflows.usage
        if by == "day":
            rows = [{"key": f"{day.start:%Y-%m-%d}", **_sums(day)} for day in usage.daily(days)]
        else:
            rows = [{"key": group.key, **_sums(group)} for group in usage.by(BY[by], since=start)]
        return usage.stats(since=start).totals, rows

    return store.read(look)


def _sums(totals: UsageTotals) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in UsageTotals.model_fields}


def _lines(screen: Screen, by: str, start: datetime, totals: UsageTotals, rows: list[dict[str, Any]]) -> Iterator[Any]:
    counted = f"{totals.executions:,} execution{'' if totals.executions == 1 else 's'}"
    since = screen.format_value(start)
    yield f"{money(totals.cost_usd)} for {counted} and {totals.total_tokens:,} tokens since {since}"
    if rows:
        yield ""
        yield from screen.table((Column(by.upper(), lambda row: row["key"], keep=True), *SUMS), rows)
