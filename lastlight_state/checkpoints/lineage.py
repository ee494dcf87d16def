"""Channel histories: the writes to each channel since its last stored value, in the ancestors of a checkpoint.

The database walks the ancestors in one recursive query, and reads only the requested channels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.selectable import NamedFromClause

from lastlight_state.backends.sql.json import member_of, members_of
from lastlight_state.checkpoints import statements as sql, values
from lastlight_state.checkpoints.models import CHECKPOINTS, VALUES
from lastlight_state.checkpoints.records import ChannelHistory, CheckpointWrite
from lastlight_state.checkpoints.statements import of_thread
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.units.unit import Unit


class Ancestor(NamedTuple):
    """An ancestor of a checkpoint, as it is seen for one channel."""

    channel: str
    id: str
    parent_id: str | None
    version: str | None
    is_valued: bool


def histories(
    unit: Unit, thread_id: str, namespace: str, parent: str, channels: Collection[str]
) -> dict[str, ChannelHistory]:
    """Return, for each channel, the writes in checkpoint ``parent`` and its ancestors, and the value before them.

    Raises `CorruptData` if a write or value cannot be read.
    """
    given = {"channels": as_list([{"name": one} for one in sorted(channels)])}
    given |= {"thread_id": thread_id, "namespace": namespace, "parent": parent}
    lines: dict[str, dict[str, Ancestor]] = defaultdict(dict)
    for row in unit.rows(_LINES, given):
        lines[row.channel][row.id] = row
    written: dict[tuple[str, str], list[CheckpointWrite]] = defaultdict(list)
    place = {"thread": thread_id, "namespace": namespace}
    ancestors = [{**place, "id": one, "channel": channel} for channel, line in lines.items() for one in line]
    for write in unit.rows(sql.WRITES_TO, {"wanted": as_list(ancestors)}):
        written[write["channel"], write["checkpoint_id"]].append(CheckpointWrite.of(write))
    named = {
        (namespace, channel, row.version)
        for channel, line in lines.items()
        for row in line.values()
        if row.is_valued and row.version is not None
    }
    stored, damaged = values.read(unit, thread_id, sorted(named))
    if damaged:
        raise next(iter(damaged.values()))
    found = {}
    for channel in channels:
        line = _in_order(lines[channel], parent)
        writes = tuple(one for row in line for one in written[channel, row.id])
        version = line[0].version if line else None
        found[channel] = ChannelHistory.of({"writes": writes, "value": stored.get((namespace, channel, version or ""))})
    return found


def _in_order(line: dict[str, Ancestor], parent: str) -> list[Ancestor]:
    """Return these ancestors, the oldest first. A line that comes back to itself ends there."""
    found: list[Ancestor] = []
    at: str | None = parent
    while at is not None and (row := line.pop(at, None)) is not None:
        found.append(row)
        at = row.parent_id
    return found[::-1]


def _walk() -> sa.CTE:
    """Return a recursive query: for each of ``channels``, the checkpoint ``parent`` and its ancestors, up to and
    including the nearest one with a stored value of the channel.

    A cycle of parents ends the recursion, because UNION follows no row twice.
    """
    channels = elements_table("channels")
    channel = member_of(channels.c.value, "name").label("channel")
    first, parent = CHECKPOINTS.alias("first"), CHECKPOINTS.alias("parent")
    columns = [channel, *_ancestor_columns(first, channel)]
    is_first = sa.and_(
        of_thread(first),
        first.c.namespace == bind("namespace", first.c.namespace),
        first.c.id == bind("parent", first.c.id),
    )
    line = sa.select(*columns).select_from(channels.join(first, is_first)).cte("line", recursive=True)
    is_parent = sa.and_(
        of_thread(parent), parent.c.namespace == bind("namespace", parent.c.namespace), parent.c.id == line.c.parent_id
    )
    return line.union(
        sa.select(line.c.channel, *_ancestor_columns(parent, line.c.channel))
        .select_from(line.join(parent, is_parent))
        .where(~line.c.is_valued)
    )


def _ancestor_columns(ancestor: NamedFromClause, channel: sa.ColumnElement[str]) -> list[sa.ColumnElement[Any]]:
    """Return the columns to read of an ancestor: id, parent, the channel's version, and whether a value is stored."""
    versions = members_of(ancestor.c.versions).table_valued("key", "value", name=f"versions_of_{ancestor.name}")
    version = sa.select(versions.c.value).where(versions.c.key == channel).correlate_except(versions).scalar_subquery()
    stored = VALUES.alias(f"stored_of_{ancestor.name}")
    is_stored = sa.and_(
        of_thread(stored),
        stored.c.namespace == ancestor.c.namespace,
        stored.c.channel == channel,
        stored.c.version == version,
    )
    is_valued = sa.select(stored.c.number).where(is_stored).correlate_except(stored).exists()
    return [ancestor.c.id, ancestor.c.parent_id, version.label("version"), is_valued.label("is_valued")]


_LINES = statement_of(sa.select(*_walk().c), Ancestor)
