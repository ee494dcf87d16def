"""What ``repair --counters`` does and shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.exits import NO, Failure
from lastlight_state.cli.opening import look, working
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import Column

COUNTS = (Column("COUNTER", lambda row: row[0]), Column("BEHIND", lambda row: row[1], right=True))
SAMPLES = (
    Column("COUNTER", lambda late: late.counter),
    Column("OF", lambda late: late.key, keep=True),
    Column("IS", lambda late: late.value, right=True),
    Column("MUST BE", lambda late: late.needed, right=True),
)


def raised(call: Call, *, dry_run: bool) -> Answer:
    """Raise the counters that are behind, or only say which; then they are exit code 1."""
    plan = look(call, lambda store: store.maintenance.counters.plan())
    data: dict[str, Any] = {"dry_run": dry_run, **plan.model_dump(), "receipt": None}
    if dry_run:
        failure = Failure(NO, "behind", f"{_amount(plan.counts)} behind", {"counts": plan.counts})
        return Answer(data, lambda screen: _lines(screen, plan), failure if plan.counts else None)
    with working(call) as store:
        receipt = store.maintenance.counters.run()
    data |= {"counts": receipt.counts, "receipt": receipt}
    told = f"receipt {receipt.id}: {_amount(receipt.counts)} raised"
    return Answer(data, lambda screen: [told, *screen.table(COUNTS, list(receipt.counts.items()))])


def _lines(screen: Screen, plan: Any) -> Iterator[Any]:
    yield f"{_amount(plan.counts)} behind"
    yield from screen.table(COUNTS, list(plan.counts.items()))
    yield ""
    yield from screen.table(SAMPLES, plan.samples)


def _amount(counts: Mapping[str, int]) -> str:
    many = sum(counts.values())
    return "1 counter" if many == 1 else f"{many} counters"
