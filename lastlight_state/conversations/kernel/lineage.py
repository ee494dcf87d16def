"""A branch and its ancestors, and what each contributes to the history.

A fork inherits the first ``forked_at_ord`` positions of its parent's history, and its own messages follow. So each
ancestor contributes its own positions below the smallest fork point on the way to it, and a position is a place in the
whole history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.kernel.orders import OrderMessage
from lastlight_state.conversations.shown import BranchLinkRow
from lastlight_state.conversations.tables import BRANCHES, LINKS, PROGRESSIONS
from lastlight_state.db import valid
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData

_b, _p, _l = BRANCHES.c, PROGRESSIONS.c, LINKS.c


class LineRow(TypedDict):
    """A branch of a line, and what it contributes to its history."""

    id: str
    progression_id: str
    parent_branch_id: str | None
    forked_at_ord: int | None
    until: int
    room: int


class Position(TypedDict):
    """Which order has a position of a history."""

    id: str
    branch_id: str
    ord: int


class Segment(NamedTuple):
    """What one branch contributes to a history: positions from ``start`` to below ``until``. None if they are equal."""

    branch_id: str
    progression_id: str
    start: int
    until: int


def _line() -> Any:
    """From a branch up, as long as ancestors contribute positions from ``from_ord`` on.

    ``room`` is how many ancestors are left by the depth of the branch, which ends the walk in a circle.
    """
    start = (
        sa.select(
            *(_b[name] for name in ("id", "progression_id", "parent_branch_id", "forked_at_ord")),
            _p.next_ord.label("until"),
            _b.fork_depth.label("room"),
        )
        .select_from(BRANCHES.join(PROGRESSIONS, _p.id == _b.progression_id))
        .where(_b.id == bind("branch_id", _b.id))
        .cte("line", recursive=True)
    )
    parent = BRANCHES.alias("parent")
    inherited = sa.case((start.c.until < start.c.forked_at_ord, start.c.until), else_=start.c.forked_at_ord)
    from_ord = bind("from_ord", _p.next_ord)
    up = (
        sa.select(
            *(parent.c[name] for name in ("id", "progression_id", "parent_branch_id", "forked_at_ord")),
            inherited,
            start.c.room - number(1),
        )
        .select_from(start.join(parent, parent.c.id == start.c.parent_branch_id))
        .where(start.c.room > number(0), start.c.forked_at_ord > from_ord)
    )
    line = start.union_all(up)
    return sa.select(*line.c).order_by(line.c.room.desc())


_LINE = prepared(_line(), LineRow)

_positions = listed("positions")
_AT = sa.and_(
    _l.progression_id == member_of(_positions.c.value, "id"),
    _l.ord == sa.cast(member_of(_positions.c.value, "ord"), _l.ord.type),
)
#: The links at some positions, with the branch of each; joined to messages by who reads bodies.
PLACES = _positions.join(LINKS, _AT)
BRANCH_ID = member_of(_positions.c.value, "branch_id").label("branch_id")
ORDER = prepared(sa.select(_l.ord, BRANCH_ID, _l.message_id).select_from(PLACES).order_by(_l.ord), BranchLinkRow)

_OWN = prepared(
    sa.select(_l.message_id)
    .where(_l.progression_id == bind("progression_id", _l.progression_id))
    .where(_l.ord >= bind("start", _l.ord), _l.ord < bind("until", _l.ord))
    .order_by(_l.ord),
    OrderMessage,
)


def line_of(unit: Unit, branch_id: str, from_ord: int = -1) -> list[Segment]:
    """The branch and its ancestors, as far as they contribute positions from ``from_ord`` on.

    Raises `NotFound`, and `CorruptData` for ancestors that are more than the branch's depth says, as in a circle.
    """
    rows = unit.rows(_LINE, {"branch_id": branch_id, "from_ord": from_ord})
    if not rows:
        raise valid.not_found(words.BRANCH, branch_id)
    last = rows[-1]
    if last["room"] <= 0 and last["parent_branch_id"] is not None:
        raise CorruptData("branches", branch_id, "parent_branch_id", problem="has more ancestors than fork_depth says")
    return [Segment(row["id"], row["progression_id"], row["forked_at_ord"] or 0, row["until"]) for row in rows]


def length_of(line: Sequence[Segment]) -> int:
    """The length of the history of the first branch of a line."""
    return line[0].until


def positions(line: Sequence[Segment], first: int, until: int) -> list[Position]:
    """Return which order has each position from ``first`` to below ``until`` of a line's history."""
    return [
        {"id": segment.progression_id, "branch_id": segment.branch_id, "ord": ord_}
        for segment in reversed(line)
        for ord_ in range(max(first, segment.start), min(until, segment.until))
    ]


def placed(given: Sequence[Position]) -> dict[str, str]:
    """Return the parameters of statements about positions."""
    return {"positions": as_list(given)}


def whole_order(unit: Unit, branch_id: str) -> list[str]:
    """The ids of a whole history, one statement for each branch of its line. Raises `NotFound` and `CorruptData`."""
    line = line_of(unit, branch_id)
    found = [
        row["message_id"]
        for one in reversed(line)
        if one.start < one.until
        for row in unit.rows(_OWN, {"progression_id": one.progression_id, "start": one.start, "until": one.until})
    ]
    _refuse_gaps(branch_id, length_of(line), len(found))
    return found


def refuse_gaps(branch_id: str, wanted: Sequence[Position], found: int) -> None:
    """Raise `CorruptData` where a position of the history has no message."""
    _refuse_gaps(branch_id, len(wanted), found)


def _refuse_gaps(branch_id: str, wanted: int, found: int) -> None:
    if found != wanted:
        problem = f"has {wanted - found} positions without a message"
        raise CorruptData("progression_links", branch_id, "ord", problem=problem)
