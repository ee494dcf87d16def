"""Whole checkpoints, made of their rows, values and writes, in three statements for any number of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

from lastlight_state.checkpoints import statements as sql, values
from lastlight_state.checkpoints.arguments import Content
from lastlight_state.checkpoints.records import Checkpoint, CheckpointWrite, WholeCheckpoint
from lastlight_state.checkpoints.shown import WholeRow
from lastlight_state.db.listed import as_list
from lastlight_state.db.unit import Unit


def whole(unit: Unit, rows: Sequence[WholeRow]) -> list[Checkpoint]:
    """Return these checkpoints of one thread. Raises `CorruptData` for a value that cannot be rebuilt."""
    if not rows:
        return []
    thread_id = rows[0]["thread_id"]
    named = {(row["namespace"], *one) for row in rows for one in row["versions"].items()}
    found = values.read(unit, thread_id, sorted(named))
    wanted = as_list([{"thread": thread_id, "namespace": row["namespace"], "id": row["id"]} for row in rows])
    writes: dict[tuple[str, str], list[CheckpointWrite]] = defaultdict(list)
    for write in unit.rows(sql.WRITES_OF, {"wanted": wanted}):
        writes[write["namespace"], write["checkpoint_id"]].append(CheckpointWrite.of(write))
    return [_made(row, found, tuple(writes[row["namespace"], row["id"]])) for row in rows]


def _made(row: WholeRow, found: dict[values.Name, Content], writes: tuple[CheckpointWrite, ...]) -> Checkpoint:
    space = row["namespace"]
    valued = {
        channel: found[space, channel, version]
        for channel, version in row["versions"].items()
        if (space, channel, version) in found
    }
    shown = {name: value for name, value in row.items() if name != "body"}
    content = Content(row["format"], row["body"])
    made: Any = {**shown, "content": content, "values": valued, "writes": writes}
    return Checkpoint.of(cast(WholeCheckpoint, made))
