"""Removes checkpoints of a thread.

A value is kept while a checkpoint names it or another kept value is rebuilt from it. The database itself selects the
rows to remove and none are fetched, so the needed memory does not grow with the thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.backends.sql.json import kind_of, member_of, members_of
from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.checkpoints.models import CHECKPOINTS, VALUES, WRITES
from lastlight_state.checkpoints.statements import of_thread
from lastlight_state.db.rows.statements import Row, Statement, constant, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema import columns
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData


def thread(unit: Unit, thread_id: str) -> Counter[str]:
    """Remove a locked thread with all its rows. Return the numbers of removed rows by table."""
    given = {"thread_id": thread_id}
    return Counter({table: unit.change(statement, given) for table, statement in sql.REMOVE_ALL.items()})


def of_runs(unit: Unit, thread_id: str, runs: str) -> int:
    """Remove the checkpoints that these runs made in a locked thread. Return how many were removed.

    ``runs`` is a JSON list for the statements. The checkpoints' writes are removed, too, and values that are no longer
    needed. Raises `CorruptData` as `remove_superseded` does.
    """
    return _remove_checkpoints(unit, _OF_RUNS, {"thread_id": thread_id, "runs": runs})


def remove_superseded(unit: Unit, thread_id: str, keep: int, from_ancestors: Collection[str]) -> int:
    """Remove all checkpoints of a locked thread except the last ``keep`` of each namespace.

    Return how many were removed. For each channel in ``from_ancestors``, ancestors are kept back to the nearest one
    that has a value of the channel. Raises `CorruptData` if it cannot be read which values a checkpoint names.
    """
    channels = as_list([{"name": one} for one in sorted(from_ancestors)])
    return _remove_checkpoints(unit, _SUPERSEDED, {"thread_id": thread_id, "keep": keep, "channels": channels})


_c, _v = CHECKPOINTS.alias("c"), VALUES.alias("v")


class _Removal(NamedTuple):
    """The statements that remove some checkpoints of a thread: first the writes, then the checkpoints."""

    writes: Statement
    checkpoints: Statement


def _removal(numbers: sa.SelectBase) -> _Removal:
    """Return the statements that remove the checkpoints with these numbers (``seq``)."""
    these = sa.select(_c.c.namespace, _c.c.id).where(of_thread(_c), _c.c.seq.in_(numbers))
    of_these = sa.tuple_(WRITES.c.namespace, WRITES.c.checkpoint_id).in_(these)
    return _Removal(
        statement_of(sa.delete(WRITES).where(of_thread(WRITES), of_these)),
        statement_of(sa.delete(CHECKPOINTS).where(of_thread(CHECKPOINTS), CHECKPOINTS.c.seq.in_(numbers))),
    )


def _remove_checkpoints(unit: Unit, removal: _Removal, given: Row) -> int:
    for checkpoint_id in unit.values(_UNREADABLE, given):  # JSON null, which is read as None
        raise CorruptData(str(CHECKPOINTS.name), checkpoint_id, "versions")
    unit.change(removal.writes, given)
    removed = unit.change(removal.checkpoints, given)
    if removed:
        unit.change(_SWEEP, given)
    return removed


#: Finds a checkpoint whose ``versions`` are not a JSON object. `_SWEEP` would take it to name no values.
_UNREADABLE = statement_of(
    sa.select(_c.c.id, _c.c.versions)
    .where(of_thread(_c), kind_of(_c.c.versions).is_distinct_from(constant("object")))
    .limit(number(1))
)


# Selecting the checkpoints to remove, by their numbers, which are unique within a thread.

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
    """Move the query's CTEs into a subquery, because SQLite's driver does not count the rows of ``WITH … DELETE``."""
    return sa.select(*gone.subquery("gone").c).add_cte(*ctes, nest_here=True)


def _needed_ancestors(latest: sa.CTE) -> sa.CTE:
    """Return a recursive query: for each of ``channels``, ancestors of the latest checkpoint, back to one with a value.

    If the parents form a cycle, the recursion ends, because UNION follows no row twice.
    """
    channels = elements_table("channels")
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


# Selecting the values to remove: all except those that a checkpoint names, and those needed to rebuild one of them
# (`values.chain`).


def _sweep() -> Statement:
    """Return the statement that removes the values of a thread that are no longer needed.

    Outer joins force SQLite's order of the tables: without statistics, another order takes a minute for 6,000 values.
    The NULL rows that outer joins add match no key.
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
    return statement_of(sa.delete(VALUES).where(of_thread(VALUES), sa.tuple_(*_key(VALUES)).in_(_within(gone, named))))


#: Clearing the lowest bits of a value's number below each of these powers gives the numbers that rebuild the value.
_POWERS = [2**bit for bit in range(models.WHOLE_INTERVAL.bit_length())]


def _key(values: sa.FromClause) -> list[sa.ColumnElement[str]]:
    return [values.c.namespace, values.c.channel, values.c.version]


_SWEEP = _sweep()
