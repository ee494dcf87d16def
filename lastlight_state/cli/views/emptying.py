"""What ``redact`` and ``erase`` have in common: the plan, the question, the work and its receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lastlight_state.cli import consent
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.opening import look, working
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import Column
from lastlight_state.maintenance import RedactPlan
from lastlight_state.receipts import Receipt
from lastlight_state.store import StateStore

COUNTS = (Column("TABLE", lambda row: row[0]), Column("ROWS", lambda row: row[1], right=True))
PROTECTED = (Column("STAYS BECAUSE", lambda row: row[0]), Column("MESSAGES", lambda row: row[1], right=True))


def emptied(
    call: Call,
    plan: Callable[[StateStore], RedactPlan],
    run: Callable[[StateStore], Receipt],
    *,
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Say what would be done, or ask and do it."""
    planned = look(call, plan)
    data = {"dry_run": dry_run, **planned.model_dump(), "receipt": None}
    if dry_run:
        return Answer(data, lambda screen: _planned(planned, screen))
    if planned.counts:
        consent.ask(f"Change or remove {sum(planned.counts.values())} rows?", yes=yes)
    with working(call) as store:
        receipt = run(store)
    data |= {"counts": receipt.counts, "receipt": receipt}
    return Answer(data, lambda screen: _done(receipt, planned, screen))


def _planned(plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield f"would change {sum(plan.counts.values())} rows, and empty {plan.bytes} bytes"
    yield from _table(screen, COUNTS, plan.counts)
    yield from _stays(plan, screen)


def _done(receipt: Receipt, plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield f"receipt {receipt.id}: {receipt.state}"
    yield from _table(screen, COUNTS, receipt.counts)
    yield from _stays(plan, screen)


def _stays(plan: RedactPlan, screen: Screen) -> Iterator[Any]:
    yield from _table(screen, PROTECTED, plan.protected)
    if sessions := getattr(plan, "agent_sessions", ()):
        yield ""
        yield f"log files are not touched; those of these agent sessions are about the person: {', '.join(sessions)}"


def _table(screen: Screen, columns: tuple[Column, ...], counts: Mapping[str, int]) -> Iterator[Any]:
    if counts:
        yield ""
        yield from screen.table(columns, list(counts.items()))
