"""Counters: finds those that are behind the rows which they number, and raises them.

A counter falls behind where rows were brought in by another program, or a row was restored by hand: then the next
number that it gives is taken already, and the call fails. No counter is ever lowered and no row gets another number.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance import work
from lastlight_state.maintenance.counters.counted import COUNTERS, Counter
from lastlight_state.maintenance.counters.records import CounterPlan, LateCounter
from lastlight_state.receipts import Receipt, Receipts, steps

#: How many counters a plan names.
SAMPLES = 20

#: Which counters a repair looks at next: those of this place in `COUNTERS`, after this key.
Place = tuple[int, str]
START: Place = (0, "")


class Counters(Repository):
    """``store.maintenance.counters``"""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self) -> CounterPlan:
        """Which counters are behind, at one moment. Writes nothing, and holds no lock."""
        return self._viewing(_planned)

    def run(self, *, actor: str | None = None) -> Receipt:
        """Raise every counter that is behind, in short transactions, and return the receipt.

        Writers may go on meanwhile: each counter is compared again where it is raised. Doing it again changes nothing,
        and goes on where a repair was interrupted. Raises `Conflict` ``already_running`` while another one runs.
        """
        receipt = self._receipts.begin("repair", scope="counters", policy={}, owner=work.owner(), actor=actor)

        def step(receipt: Receipt) -> tuple[Receipt, bool]:
            return self._writing(lambda unit: self._batch(unit, receipt))

        return work.ended(self._receipts, receipt, step, again="the same command")

    def _batch(self, unit: Unit, receipt: Receipt) -> tuple[Receipt, bool]:
        steps.confirm(unit, receipt)
        at, after = receipt.cursor or START
        counter = COUNTERS[at]
        last, late = _look(unit, counter, after)
        raised = sum(unit.row(counter.mend, {"key": one.key}) is not None for one in late)
        counts = Tally(receipt.counts) + Tally({counter.name: raised})
        place = (at + 1, "") if last is None else (at, last)
        stepped = steps.step(unit, receipt, counts=counts, cursor=place, at=self._now())
        return stepped, place[0] < len(COUNTERS)


def _planned(unit: Unit) -> CounterPlan:
    counts: Tally[str] = Tally()
    samples: list[LateCounter] = []
    for late in _all(unit):
        counts[late.counter] += 1
        if len(samples) < SAMPLES:
            samples.append(late)
    return CounterPlan(counts=counts, samples=tuple(samples))


def _all(unit: Unit) -> Iterator[LateCounter]:
    for counter in COUNTERS:
        after: str | None = ""
        while after is not None:
            after, late = _look(unit, counter, after)
            yield from late


def _look(unit: Unit, counter: Counter, after: str) -> tuple[str | None, list[LateCounter]]:
    """The key of the last of the next counters, None where there are none left; and those of them that are behind."""
    rows = unit.rows(counter.look, {"after": after})
    late = [
        LateCounter(counter=counter.name, key=row["key"], value=row["value"], needed=row["needed"])
        for row in rows
        if row["needed"] is not None and row["value"] < row["needed"]
    ]
    return (rows[-1]["key"] if rows else None), late
