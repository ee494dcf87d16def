"""How a sweep is planned and carried out: it looks without a lock, and removes in short transactions."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

from lastlight_state.db.permits import permitted
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.records import PrunePlan
from lastlight_state.maintenance.prune.sweeps import SWEEPS
from lastlight_state.maintenance.prune.sweeps.sweep import Look, Removal, Stage, cutoff
from lastlight_state.receipts import Receipt, steps

#: After how many looks that found nothing the receipt shows life.
QUIET = 50


class Place(NamedTuple):
    """After which place of which stage a sweep goes on, and whether this pass has removed anything."""

    after: Any = None
    removed: bool = False
    stage: int = 0

    @classmethod
    def of(cls, receipt: Receipt) -> Place:
        """Return where the work of a receipt goes on."""
        return cls() if receipt.cursor is None else cls(**receipt.cursor)


def planned(unit: Unit, terms: Terms) -> PrunePlan:
    """Return the plan of a sweep."""
    found = SWEEPS[terms["kind"]].tally(unit, begun(unit, terms))
    return PrunePlan(
        kind=terms["kind"],
        cutoff=cutoff(terms),
        records=found.records,
        counts=dict(sorted((+found.counts).items())),
        protected=dict(sorted((+found.protected).items())),
        victims=tuple(found.samples),
    )


def begun(unit: Unit, terms: Terms) -> Terms:
    """Return the terms of a sweep that begins. Raises `NotFound` for one of the ids that is not there."""
    sweep, keys = SWEEPS[terms["kind"]], terms["ids"] or ()
    refuse_missing(sweep.record, keys, sweep.known(unit, keys))
    return dict(sweep.bounded(unit, terms))


def look(unit: Unit, receipt: Receipt, place: Place) -> Look:
    """Return what is next at a place."""
    return _stage(receipt, place).look(unit, receipt.policy, place.after)


def batch(unit: Unit, receipt: Receipt, place: Place, look: Look, at: datetime) -> tuple[Receipt, Place | None]:
    """Remove what a look found, or as much of it as fits a batch. Returns where to go on, None at the end.

    A pass that has removed anything is followed by another one, which finds what was locked.
    """
    steps.confirm(unit, receipt)
    removal = Removal(Counter())
    if look.keys:
        with permitted(unit, receipt.id):
            removal = _stage(receipt, place).remove(unit, receipt.policy, look.keys, receipt.policy["batch_rows"])
    going_on = place.after if removal.more else look.after
    following = _following(receipt, Place(going_on, place.removed or bool(removal.counts), place.stage), removal.more)
    counts = Counter(receipt.counts) + removal.counts
    cursor = (following or Place())._asdict()
    return steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=cursor, at=at), following


def _following(receipt: Receipt, place: Place, more: bool) -> Place | None:
    """Return this place, or the beginning of the next pass after the last record of one."""
    if more or place.after is not None:
        return place
    if place.removed:
        return Place(stage=place.stage)
    last = len(SWEEPS[receipt.scope].stages) - 1
    return None if place.stage == last else Place(stage=place.stage + 1)


def _stage(receipt: Receipt, place: Place) -> Stage:
    return SWEEPS[receipt.scope].stages[place.stage]
