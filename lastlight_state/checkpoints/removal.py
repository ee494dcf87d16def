"""Removes checkpoints of a thread. A value stays while a checkpoint names it, or needs it to rebuild another.

The database decides what goes: nothing of a thread is fetched, so no call takes memory by the length of the thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.backends.sql.json import kind_of, member_of, members_of
from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.checkpoints.models import CHECKPOINTS, VALUES, WRITES
from lastlight_state.checkpoints.projections import VersionsRow
from lastlight_state.checkpoints.statements import of_thread
from lastlight_state.db.rows.statements import Row, Statement, constant, number, prepared
from lastlight_state.db.rows.writes import as_list, listed
from lastlight_state.db.schema import columns
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData


def thread(unit: Unit, thread_id: str) -> Counter[str]:
    """Remove a thread that is locked, with everything of it. Returns the rows by table."""
    given = {"thread_id": thread_id}
    return Counter({table: unit.change(statement, given) for table, statement in sql.REMOVE_ALL.items()})


def of_runs(unit: Unit, thread_id: str, runs: str) -> int:
    """Remove what these runs, a list of the statements, made in a thread that is locked. Returns how many there were.

    Writes go with their checkpoints, and the values that nobody needs then. Raises `CorruptData` as `superseded`.
    """
    return _removed(unit, _OF_RUNS, {"thread_id": thread_id, "runs": runs})


def superseded(unit: Unit, thread_id: str, keep: int, from_ancestors: Collection[str]) -> int:
    """Remove all checkpoints of a thread that is locked but for the last ``keep`` of each namespace.

    An ancestor stays for a channel of ``from_ancestors``, back to the nearest one that has a value of it. Returns how
    many were removed. Raises `CorruptData` where it cannot be read which values a checkpoint names.
    """
    channels = as_list([{"name": one} for one in sorted(from_ancestors)])
    return _removed(unit, _SUPERSEDED, {"thread_id": thread_id, "keep": keep, "channels": channels})


_c, _v = CHECKPOINTS.alias("c"), VALUES.alias("v")


class _Removal(NamedTuple):
    """The statements that remove some checkpoints of a thread: their writes first, which are found by them."""

    writes: Statement
    checkpoints: Statement


def _removal(numbers: sa.SelectBase) -> _Removal:
    """Return the removal of the checkpoints of these numbers."""
    these = sa.select(_c.c.namespace, _c.c.id).where(of_thread(_c), _c.c.seq.in_(numbers))
    of_these = sa.tuple_(WRITES.c.namespace, WRITES.c.checkpoint_id).in_(these)
    return _Removal(
        prepared(sa.delete(WRITES).where(of_thread(WRITES), of_these)),
        prepared(sa.delete(CHECKPOINTS).where(of_thread(CHECKPOINTS), CHECKPOINTS.c.seq.in_(numbers))),
    )


def _removed(unit: Unit, removal: _Removal, given: Row) -> int:
    for row in unit.rows(_UNREADABLE, given):  # JSON null, which is read as None
        raise CorruptData(str(CHECKPOINTS.name), row["id"], "versions")
    unit.change(removal.writes, given)
    removed = unit.change(removal.checkpoints, given)
    if removed:
        unit.change(_SWEEP, given)
    return removed


#: A checkpoint of which nobody can say what it names, if there is one. What is no object names nothing to `_SWEEP`.
_UNREADABLE = prepared(
    sa.select(_c.c.id, _c.c.versions)
    .where(of_thread(_c), kind_of(_c.c.versions).is_distinct_from(constant("object")))
    .limit(number(1)),
    VersionsRow,
)


# Which checkpoints go. They are told by their numbers, which no two of a thread share.

_made = CHECKPOINTS.alias("made")
_OF_RUNS = _removal(sa.select(_made.c.seq).where(of_thread(_made), sql.made_by_runs(_made)))


def _but_the_latest() -> sa.SelectBase:
    place = sa.func.row_number().over(partition_by=_c.c.namespace, order_by=_c.c.seq.desc()).label("place")
    placed = sa.select(_c.c.seq, place).where(of_thread(_c)).subquery("placed")
    latest = sa.select(placed.c.seq).where(placed.c.place <= sa.bindparam("keep", type_=columns.Integer)).cte("latest")
    needed = _needed_ancestors(latest)
    every = CHECKPOINTS.alias("every")
    gone = sa.except_(sa.select(every.c.seq).where(of_thread(every)), sa.select(latest.c.seq), sa.select(needed.c.seq))
    return _within(gone, latest, needed)


def _within(gone: sa.CompoundSelect[Any], *ctes: sa.CTE) -> sa.Select[Any]:
    """Return what goes, with its CTEs inside of it: SQLite's driver counts no rows of a DELETE behind a WITH."""
    return sa.select(*gone.subquery("gone").c).add_cte(*ctes, nest_here=True)


def _needed_ancestors(latest: sa.CTE) -> sa.CTE:
    """Return for each channel of the parameter ``channels`` the ancestors of the latest, until one has a value of it.

    A line that comes back to itself ends there, because no row is followed twice.
    """
    channels = listed("channels")
    channel = member_of(channels.c.value, "name").label("channel")
    line = sa.select(latest.c.seq, channel).select_from(latest.join(channels, sa.true())).cte("line", recursive=True)
    parent, versions = CHECKPOINTS.alias("parent"), members_of(_c.c.versions).table_valued("key", "value", name="named")
    version = sa.select(versions.c.value).where(versions.c.key == line.c.channel).correlate(_c, line).scalar_subquery()
    has_value = sa.exists().where(
        of_thread(_v), _v.c.namespace == _c.c.namespace, _v.c.channel == line.c.channel, _v.c.version == version
    )
    of_line = sa.and_(of_thread(_c), _c.c.seq == line.c.seq)
    is_parent = sa.and_(of_thread(parent), parent.c.namespace == _c.c.namespace, parent.c.id == _c.c.parent_id)
    return line.union(
        sa.select(parent.c.seq, line.c.channel)
        .select_from(line.join(_c, of_line).join(parent, is_parent))
        .where(~has_value)
    )


_SUPERSEDED = _removal(_but_the_latest())


# Which values go: all but those that a checkpoint names, and those that rebuild one of these (`values.chain`).


def _sweep() -> Statement:
    """Return the removal of these values.

    Outer joins keep SQLite from another order of the tables, which takes a minute for 6,000 values where it has no
    statistics. The rows without a value that they add are no row's key.
    """
    versions = members_of(_c.c.versions).table_valued("key", "value", name="versions")
    named = (
        sa.select(_c.c.namespace, versions.c.key.label("channel"), versions.c.value.label("version"))
        .select_from(_c.join(versions, sa.true()))
        .where(of_thread(_c))
        .distinct()
        .cte("named")
    )
    is_named = sa.and_(
        of_thread(_v),
        _v.c.namespace == named.c.namespace,
        _v.c.channel == named.c.channel,
        _v.c.version == named.c.version,
    )
    powers = sa.union_all(*(sa.select(number(one).label("power")) for one in _POWERS)).subquery("powers")
    base = VALUES.alias("base")
    behind = _v.c.number - _v.c.anchor
    is_base = sa.and_(
        of_thread(base),
        base.c.namespace == _v.c.namespace,
        base.c.channel == _v.c.channel,
        base.c.number == _v.c.number - behind % powers.c.power,
        base.c.encoding != constant("same"),
    )
    every = VALUES.alias("every")
    gone: sa.CompoundSelect[Any] = sa.except_(
        sa.select(*_key(every)).where(of_thread(every)),
        sa.select(*named.c),
        sa.select(*_key(base)).select_from(
            named.outerjoin(_v, is_named).outerjoin(powers, sa.true()).outerjoin(base, is_base)
        ),
    )
    return prepared(sa.delete(VALUES).where(of_thread(VALUES), sa.tuple_(*_key(VALUES)).in_(_within(gone, named))))


#: With the lowest bits of a number cleared, up to one of these, it is the number of one that rebuilds it.
_POWERS = [2**bit for bit in range(models.WHOLE_INTERVAL.bit_length())]


def _key(values: sa.FromClause) -> list[sa.ColumnElement[str]]:
    return [values.c.namespace, values.c.channel, values.c.version]


_SWEEP = _sweep()
