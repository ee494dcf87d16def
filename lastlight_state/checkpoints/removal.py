"""Removes checkpoints of a thread. A value stays while a checkpoint names it, or needs it to rebuild another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from lastlight_state.checkpoints import statements as sql, values
from lastlight_state.checkpoints.projections import NamedRow
from lastlight_state.checkpoints.statements import LineRow
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit

#: A namespace, and the id of a checkpoint there.
Place = tuple[str, str]


def thread(unit: Unit, thread_id: str) -> Counter[str]:
    """Remove a thread that is locked, with everything of it. Returns the rows by table."""
    given = {"thread_id": thread_id}
    return Counter({table: unit.change(statement, given) for table, statement in sql.REMOVE_ALL.items()})


def checkpoints(unit: Unit, thread_id: str, places: Collection[Place]) -> int:
    """Remove these checkpoints of a thread that is locked, with their writes and the values that nobody needs then.

    Returns how many there were.
    """
    if not places:
        return 0
    wanted = as_list([{"namespace": namespace, "id": one} for namespace, one in sorted(places)])
    writes = as_list([{"namespace": namespace, "checkpoint_id": one} for namespace, one in sorted(places)])
    removed = unit.change(sql.REMOVE_CHECKPOINTS, {"thread_id": thread_id, "wanted": wanted})
    unit.change(sql.REMOVE_WRITES, {"thread_id": thread_id, "wanted": writes})
    _sweep(unit, thread_id)
    return removed


def superseded(unit: Unit, thread_id: str, keep: int, from_ancestors: Collection[str]) -> set[Place]:
    """Return the checkpoints of a thread but for the last ``keep`` of each namespace, and the ancestors they need.

    An ancestor is needed for a channel of ``from_ancestors``, back to the nearest one that has a value of it.
    """
    lines: dict[str, dict[str, LineRow]] = defaultdict(dict)
    for row in unit.rows(sql.LINES, {"thread_id": thread_id}):
        lines[row["namespace"]][row["id"]] = row
    valued = {
        (row["namespace"], row["channel"], row["version"])
        for row in unit.rows(sql.INVENTORY, {"thread_id": thread_id})
        if row["channel"] in from_ancestors
    }
    gone: set[Place] = set()
    for namespace, rows in lines.items():
        kept = set(list(rows)[:keep])
        for one in sorted(kept):
            kept.update(_ancestors(rows, one, from_ancestors, valued))
        gone.update((namespace, one) for one in rows if one not in kept)
    return gone


def _ancestors(
    rows: Mapping[str, LineRow], one: str, channels: Collection[str], valued: Collection[values.Name]
) -> Iterator[str]:
    """Return the ancestors of a checkpoint, back to where each of these channels has a value."""
    row: LineRow | None = rows[one]
    without = set(channels)
    seen: set[str] = set()
    while row is not None and row["id"] not in seen:
        seen.add(row["id"])
        yield row["id"]
        versions = row["versions"]
        without -= {name for name in without if (row["namespace"], name, versions.get(name)) in valued}
        row = rows.get(row["parent_id"] or "") if without else None


def _sweep(unit: Unit, thread_id: str) -> None:
    """Remove the values of a thread that none of its checkpoints needs."""
    named = [
        (row["namespace"], channel, version)
        for row in unit.rows(sql.LINES, {"thread_id": thread_id})
        for channel, version in row["versions"].items()
    ]
    stored: Sequence[NamedRow] = unit.rows(sql.INVENTORY, {"thread_id": thread_id})
    kept = values.needed(stored, named)
    gone = [
        {name: row[name] for name in ("namespace", "channel", "version")}
        for row in stored
        if (row["namespace"], row["channel"], row["version"]) not in kept
    ]
    if gone:
        unit.change(sql.REMOVE_VALUES, {"thread_id": thread_id, "wanted": as_list(gone)})
