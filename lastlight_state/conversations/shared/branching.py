"""Creating branches and forks, and reading their histories. A fork inherits the beginning of its parent's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import checks, words
from lastlight_state.conversations.records import Branch, BranchLink, BranchSummary
from lastlight_state.conversations.shared import orders, sessions
from lastlight_state.conversations.shared.feeds import entry_parameters
from lastlight_state.conversations.shared.sessions import FORK_KEYS
from lastlight_state.conversations.tables import BRANCHES, LINKS, PROGRESSIONS
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.records import needed_columns
from lastlight_state.db.rows.statements import bind, columns_of, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, CorruptData, InvalidValue
from lastlight_state.ids import new_id

# The history of a branch consists of segments: one from each ancestor, then one from the branch itself.
#
# A fork inherits the first ``forked_at_ord`` positions of its parent's history, and its own messages follow. So each
# ancestor contributes its own positions below the smallest fork point between it and the branch. Positions count
# through the whole history.

_branch_columns, _order_columns, _l = BRANCHES.c, PROGRESSIONS.c, LINKS.c


class LineBranch(NamedTuple):
    """A branch of a line, and what it contributes to its history."""

    id: str
    progression_id: str
    parent_branch_id: str | None
    forked_at_ord: int | None
    until: int
    room: int


class Position(TypedDict):
    """The order that has a position of a history."""

    id: str
    branch_id: str
    ord: int


class Segment(NamedTuple):
    """The part of a history that one branch contributes: positions ``start`` to ``until - 1``. May be empty."""

    branch_id: str
    progression_id: str
    start: int
    until: int


def _line() -> Any:
    """Return a recursive query for a branch and those ancestors that contribute positions at or after ``from_ord``.

    ``room`` starts as the branch's ``fork_depth`` and decreases by one per ancestor, so that the query ends even in a
    cycle.
    """
    start = (
        sa.select(
            *(_branch_columns[name] for name in ("id", "progression_id", "parent_branch_id", "forked_at_ord")),
            _order_columns.next_ord.label("until"),
            _branch_columns.fork_depth.label("room"),
        )
        .select_from(BRANCHES.join(PROGRESSIONS, _order_columns.id == _branch_columns.progression_id))
        .where(_branch_columns.id == bind("branch_id", _branch_columns.id))
        .cte("line", recursive=True)
    )
    parent = BRANCHES.alias("parent")
    inherited = sa.case((start.c.until < start.c.forked_at_ord, start.c.until), else_=start.c.forked_at_ord)
    from_ord = bind("from_ord", _order_columns.next_ord)
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


_LINE = statement_of(_line(), LineBranch)

_positions = elements_table("positions")
_AT = sa.and_(
    _l.progression_id == member_of(_positions.c.value, "id"),
    _l.ord == sa.cast(member_of(_positions.c.value, "ord"), _l.ord.type),
)
#: The link rows at the given positions. Statements that read message bodies join them to messages.
PLACES = _positions.join(LINKS, _AT)
BRANCH_ID = member_of(_positions.c.value, "branch_id").label("branch_id")
ORDER = statement_of(sa.select(_l.ord, BRANCH_ID, _l.message_id).select_from(PLACES).order_by(_l.ord), BranchLink)

_OWN = statement_of(
    sa.select(_l.message_id)
    .where(_l.progression_id == bind("progression_id", _l.progression_id))
    .where(_l.ord >= bind("start", _l.ord), _l.ord < bind("until", _l.ord))
    .order_by(_l.ord)
)


def line_of(unit: Unit, branch_id: str, from_ord: int = -1) -> list[Segment]:
    """Return the segments of a branch's history at or after position ``from_ord``, the branch's own segment first.

    Raises `NotFound`. Raises `CorruptData` if the branch has more ancestors than its ``fork_depth``, as in a cycle.
    """
    rows = unit.rows(_LINE, {"branch_id": branch_id, "from_ord": from_ord})
    if not rows:
        raise valid.not_found(words.BRANCH, branch_id)
    last = rows[-1]
    if last.room <= 0 and last.parent_branch_id is not None:
        raise CorruptData("branches", branch_id, "parent_branch_id", problem="has more ancestors than fork_depth says")
    return [Segment(row.id, row.progression_id, row.forked_at_ord or 0, row.until) for row in rows]


def length_of(line: Sequence[Segment]) -> int:
    """Return the number of positions in a branch's history, given its segments as `line_of` returns them."""
    return line[0].until


def positions(line: Sequence[Segment], first: int, until: int) -> list[Position]:
    """Return, for each position of a history from ``first`` to ``until - 1``, the message order that holds it."""
    return [
        {"id": segment.progression_id, "branch_id": segment.branch_id, "ord": ord_}
        for segment in reversed(line)
        for ord_ in range(max(first, segment.start), min(until, segment.until))
    ]


def position_parameters(given: Sequence[Position]) -> dict[str, str]:
    """Return the parameters of a statement that reads these positions."""
    return {"positions": as_list(given)}


def whole_order(unit: Unit, branch_id: str) -> list[str]:
    """Return the message ids of a branch's whole history. Runs one statement for each branch that contributes.

    Raises `NotFound` and `CorruptData`.
    """
    line = line_of(unit, branch_id)
    found = [
        message_id
        for one in reversed(line)
        if one.start < one.until
        for message_id in unit.values(
            _OWN, {"progression_id": one.progression_id, "start": one.start, "until": one.until}
        )
    ]
    refuse_missing(branch_id, length_of(line), len(found))
    return found


def refuse_gaps(branch_id: str, wanted: Sequence[Position], found: int) -> None:
    """Raise `CorruptData` if fewer messages were found than positions were requested."""
    refuse_missing(branch_id, len(wanted), found)


def refuse_missing(branch_id: str, wanted: int, found: int) -> None:
    """Raise `CorruptData` if the number of messages found differs from the number of positions requested."""
    if found != wanted:
        problem = f"has {wanted - found} positions without a message"
        raise CorruptData("progression_links", branch_id, "ord", problem=problem)


_LIMITS = limits_of(BRANCHES)


class BranchParameters(TypedDict):
    """What the row of a new branch has before it is known where it comes from; its metadata are not encoded yet."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    user: str | None
    name: str | None
    progression_id: str | None
    system_msg_id: str | None
    forked_at_ord: int | None
    fork_depth: int
    status: str | None
    started_at: datetime | None
    ended_at: datetime | None
    provider: str | None
    model: str | None
    agent_name: str | None
    node_metadata: Any
    extra: str | None


class BranchDraft(BranchParameters):
    """A new branch of a session."""

    session_id: str
    parent_branch_id: str | None


class ForkDraft(BranchParameters):
    """A new branch that has a parent, and is in the parent's session unless it names another."""

    session_id: str | None
    parent_branch_id: str


class Hints(TypedDict):
    """A hint at the model that answers."""

    provider: str | None
    model: str | None
    agent_name: str | None


_b, _p = BRANCHES.c, PROGRESSIONS.c
#: Which model answers, for lists.
HINTS = ("provider", "model", "agent_name")
HINT_CHECKS = checks.of(BRANCHES, *HINTS)
_LENGTH = sa.select(_p.next_ord).where(_p.id == _b.progression_id).scalar_subquery().label("length")

#: The columns of a `BranchSummary` and of a `Branch`.
SUMMARY = [*columns_of(BranchSummary, BRANCHES), _LENGTH]
_IN_LISTS = needed_columns(BranchSummary)
COLUMNS = [*SUMMARY, *(column for column in every_column_of(Branch, BRANCHES) if column.name not in _IN_LISTS)]

GET = statement_of(sa.select(*COLUMNS).where(_b.id == bind("branch_id", _b.id)), Branch)
_INSERT = statement_of(
    insert(BRANCHES)
    .values({column.name: bind(column.name, column) for column in BRANCHES.columns})
    .on_conflict_do_nothing()
    .returning(_b.id)
)
#: The length of the history to fork from, under a shared row lock: forks do not block one another. A fork and an append
#: to the same order, or its replacement, do block each other.
_LENGTH_LOCKED = statement_of(sa.select(_p.next_ord).where(_p.id == bind("id", _p.id)).with_for_update(read=True))


def hints(metadata: Mapping[str, Any] | None) -> Hints:
    """Return the ``provider``, ``model`` and ``agent_name`` in metadata. A value that is no valid name becomes None."""
    given = metadata or {}
    return {
        "provider": _hint(given.get("provider"), _LIMITS.provider),
        "model": _hint(given.get("model"), _LIMITS.model),
        "agent_name": _hint(given.get("agent_name"), _LIMITS.agent_name),
    }


def _hint(value: Any, most: int) -> str | None:
    with suppress(InvalidValue):
        return checks.name("hint", value, most)
    return None


def get(unit: Unit, branch_id: str) -> Branch:
    """Return the branch. Raises `NotFound`."""
    found = unit.row(GET, {"branch_id": branch_id})
    if found is None:
        raise valid.not_found(words.BRANCH, branch_id)
    return found


def insert_branch(unit: Unit, listeners: Listeners, row: BranchDraft, now: datetime) -> Branch:
    """Insert a branch into a session that this unit has locked, and say that the session changed."""
    if unit.value(_INSERT, row) is None:
        stored = get(unit, row["id"])
        raise AlreadyExists(words.BRANCH, row["id"], session_id=stored.session_id)
    kind: words.ChangeKind = "branch.created" if row["parent_branch_id"] is None else "branch.forked"
    told = entry_parameters(kind, branch_id=row["id"], first=row["forked_at_ord"])
    sessions.record_change(unit, listeners, row["session_id"], now, told)
    return get(unit, row["id"])


def fork(unit: Unit, listeners: Listeners, row: ForkDraft, *, at: int | None, where: str, now: datetime) -> Branch:
    """Insert a branch that inherits the first ``at`` positions of its parent's history (None: the whole history).

    The number of statements is constant, whatever the history's length and the number of ancestors.
    """
    parent = get(unit, row["parent_branch_id"])
    if parent.fork_depth >= words.FORK_DEPTH:
        raise InvalidValue("parent_branch_id", f"has {words.FORK_DEPTH} ancestors, which is the most")
    session_id = row["session_id"] or parent.session_id
    sessions.lock_session(unit, session_id)
    length: int | None = unit.value(_LENGTH_LOCKED, {"id": parent.progression_id})
    if length is None:  # the parent was deleted in the meantime
        raise valid.not_found(words.BRANCH, parent.id)
    start = length if at is None else valid.number(where, at, most=length)
    progression_id = new_id()
    orders.create(unit, orders.fresh(progression_id, (row["created_at"], row["created_at_unix"]), start=start))
    origin = {"parent_branch_id": parent.id, "forked_at_ord": start}
    values: BranchDraft = {
        **row,
        "parent_branch_id": parent.id,
        "forked_at_ord": start,
        "session_id": session_id,
        "progression_id": progression_id,
        "system_msg_id": parent.system_msg_id if row["system_msg_id"] is None else row["system_msg_id"],
        "fork_depth": parent.fork_depth + 1,
        "provider": parent.provider if row["provider"] is None else row["provider"],
        "model": parent.model if row["model"] is None else row["model"],
        "agent_name": parent.agent_name if row["agent_name"] is None else row["agent_name"],
        "node_metadata": codec.encode(
            "node_metadata", {**(row["node_metadata"] or {}), **origin}, max_bytes=_LIMITS.node_metadata
        ),
    }
    return insert_branch(unit, listeners, values, now)


def origin_in(where: str, metadata: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """Return the parent's id and the fork position from a branch's metadata, or None if the metadata have neither.

    Raises `InvalidValue` if the metadata have only one of the two.
    """
    given = [key for key in FORK_KEYS if metadata and metadata.get(key) is not None]
    if not metadata or not given:
        return None
    if len(given) == 1:
        raise InvalidValue(where, f"must have both {' and '.join(FORK_KEYS)}, or neither")
    return (
        valid.identifier(f"{where}.parent_branch_id", metadata["parent_branch_id"], _LIMITS.parent_branch_id),
        valid.number(f"{where}.forked_at_ord", metadata["forked_at_ord"]),
    )


def refuse_other_origin(where: str, told: tuple[str, int] | None, parent_branch_id: str, at: int | None) -> None:
    """Raise `InvalidValue` if a branch's metadata name another parent or fork position than the call's arguments."""
    if told is not None and (told[0] != parent_branch_id or at != told[1]):
        raise InvalidValue(where, f"must not name another {' or '.join(FORK_KEYS)} than the call")
