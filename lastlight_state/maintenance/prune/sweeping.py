"""How a sweep is planned and carried out: it looks without a lock, and removes in short transactions."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune import statements as sql
from lastlight_state.maintenance.prune.checks import Terms, refuse_missing
from lastlight_state.maintenance.prune.records import PrunePlan
from lastlight_state.maintenance.prune.sweeps import SWEEPS
from lastlight_state.maintenance.prune.sweeps.sweep import Look, Removal, cutoff
from lastlight_state.receipts import Receipt, steps

#: After how many looks that found nothing the receipt shows life.
QUIET = 50


class Place(NamedTuple):
    """After which place a sweep goes on, and whether this pass has removed anything."""

    after: Any = None
    removed: bool = False

    @classmethod
    def of(cls, receipt: Receipt) -> Place:
        """Where the work of a receipt goes on."""
        return cls() if receipt.cursor is None else cls(**receipt.cursor)


def planned(unit: Unit, terms: Terms) -> PrunePlan:
    """The plan of a sweep."""
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
    """The terms of a sweep that begins. Raises `NotFound` for one of the ids that is not there."""
    sweep, keys = SWEEPS[terms["kind"]], terms["ids"] or ()
    refuse_missing(sweep.record, keys, sweep.known(unit, keys))
    return dict(sweep.bounded(unit, terms))


def batch(unit: Unit, receipt: Receipt, place: Place, look: Look, at: datetime) -> tuple[Receipt, Place | None]:
    """Remove what a look found, or as much of it as fits a batch. Returns where to go on, None at the end.

    A pass that has removed anything is followed by another one, which finds what was locked.
    """
    steps.confirm(unit, receipt)
    removal = Removal(Counter())
    if look.keys:
        permit = {"receipt_id": receipt.id}
        unit.change(sql.PERMIT, permit)
        removal = SWEEPS[receipt.scope].remove(unit, receipt.policy, look.keys, receipt.policy["batch_rows"])
        unit.change(sql.REVOKE, permit)
    removed = place.removed or bool(removal.counts)
    if removal.more:
        following = Place(place.after, removed)
    else:
        following = Place() if look.after is None else Place(look.after, removed)
    counts = Counter(receipt.counts) + removal.counts
    stepped = steps.step(unit, receipt, counts=dict(sorted(counts.items())), cursor=following._asdict(), at=at)
    at_the_end = look.after is None and not removal.more and not removed
    return stepped, None if at_the_end else following
