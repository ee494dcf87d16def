"""The next number of a message: above all numbers in both files, and above all that this side ever gave.

Call it with the write lock on the own file: then the numbers of a side grow with its commits. The two sides cannot give
the same number, because one gives even ones and the other odd ones.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.unit import Unit
from lastlight_state.mailbox import models, parity
from lastlight_state.mailbox.kernel import meta
from lastlight_state.mailbox.kernel.pair import Pair
from lastlight_state.mailbox.kernel.readings import Columns, Reading, shown
from lastlight_state.mailbox.shown import SeqRow

#: Under what a side notes the highest number that it gave.
HIGHEST = "highest_seq"


def _highest(columns: Columns) -> sa.Select[Any]:
    """Numbers that other programs stored as texts or fractions are passed over, and so are those beyond the limit."""
    seq = columns["seq"]
    whole = sa.func.typeof(seq) == sa.literal_column("'integer'")
    within = seq <= sa.literal_column(str(parity.GREATEST))
    return sa.select(*shown(columns, "seq")).where(within, whole).order_by(seq.desc()).limit(sa.literal_column("1"))


_OF = {
    "host": Reading(models.MESSAGES_IN, _highest, row=SeqRow),
    "agent": Reading(models.MESSAGES_OUT, _highest, row=SeqRow),
}


def next_number(unit: Unit, pair: Pair) -> int:
    """The next number of this side, noted as given. ``unit`` writes the own file."""
    other = _OF["agent" if pair.side == "host" else "host"]
    theirs = pair.other.look_if_sound(lambda look: look.row(other), None)
    ours = next(iter(_OF[pair.side].rows(unit, {})), None)
    seen = [row["seq"] for row in (theirs, ours) if row is not None]
    found = parity.next_number(pair.side, max(0, meta.number(unit, pair.declared, HIGHEST), *seen))
    meta.put(unit, pair.declared, HIGHEST, str(found))
    return found


def next_numbers(unit: Unit, pair: Pair, count: int) -> list[int]:
    """The next ``count`` numbers of this side, in order."""
    first = next_number(unit, pair)
    last = first + 2 * (count - 1)
    if last != first:
        parity.next_number(pair.side, last - 1)
        meta.put(unit, pair.declared, HIGHEST, str(last))
    return list(range(first, last + 1, 2))


def keep(unit: Unit, pair: Pair) -> None:
    """Note the highest number of the own file, so that it is not given again when its message is removed."""
    found = next(iter(_OF[pair.side].rows(unit, {})), None)
    if found is not None and found["seq"] > meta.number(unit, pair.declared, HIGHEST):
        meta.put(unit, pair.declared, HIGHEST, str(found["seq"]))
