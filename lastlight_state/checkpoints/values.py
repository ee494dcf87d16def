"""Values of channels in their rows: whole, as the change since one before, or the same as one before.

The values of a channel are numbered, and ``anchor`` is the number of the whole one that a value is rebuilt from. The
k-th behind it is a change against the one whose k has the lowest bit cleared: 7 against 6, 6 against 4, 4 against 0.
So a value takes at most seven rows, which are known by their numbers, and no more than about twice its bytes; and what
grows a little with each step is stored with the logarithm of the interval instead of its length. A value that equals
the last one has a row without bytes.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.checkpoints.changes import change_between, changed
from lastlight_state.checkpoints.checks import Content
from lastlight_state.checkpoints.models import VALUES
from lastlight_state.checkpoints.projections import LastRow, NamedRow, StoredRow, WholeRow
from lastlight_state.checkpoints.records import Checkpoint, CheckpointWrite, WholeCheckpoint
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, CorruptData

_log = logging.getLogger("lastlight_state.checkpoints")

#: A namespace, a channel and a version.
Name: TypeAlias = tuple[str, str, str]
#: A namespace and a channel.
Line: TypeAlias = tuple[str, str]
#: The stored rows of a channel by their numbers, or why one cannot be read.
Stored: TypeAlias = Mapping[int, "StoredRow | CorruptData"]


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def chain(anchor: int, number: int) -> list[int]:
    """Return the numbers of the values that one is rebuilt from, the whole one first and itself last."""
    found = [number]
    while (behind := found[-1] - anchor) > 0:
        found.append(anchor + (behind & (behind - 1)))
    return found[::-1]


def store(
    unit: Unit,
    thread_id: str,
    namespace: str,
    versions: Mapping[str, str],
    values: Mapping[str, Content],
    *,
    keep: bool = False,
) -> None:
    """Store the values of these channels under their versions, in a thread that is locked.

    A version that has its value already keeps it. Raises `AlreadyExists` where that is another one, unless ``keep``.
    """
    named = {(namespace, channel, versions[channel]): value for channel, value in values.items()}
    for known in _named(unit, thread_id, named):
        given_one = named.pop(_name(known))
        if not keep:
            _refuse_other(known, given_one)
    if not named:
        return
    given = {"thread_id": thread_id, "namespace": namespace}
    channels = as_list([{"thread": thread_id, "namespace": namespace, "channel": channel} for _, channel, _ in named])
    last = {row["channel"]: row for row in unit.rows(sql.LASTS, {"wanted": channels})}
    digests = {channel: digest(value.data) for (_, channel, _), value in named.items()}
    bases = {
        (namespace, channel): chain(row["anchor"], row["number"] + 1)[:-1]
        for channel, row in last.items()
        if digests[channel] != row["digest"] and not _is_full(row)
    }
    stored = _stored(unit, thread_id, bases)
    rows = [
        {
            **given,
            "channel": channel,
            "version": version,
            "format": value.format,
            "size": len(value.data),
            "digest": digests[channel],
            **_encoded(value.data, digests[channel], last.get(channel), stored[namespace, channel]),
        }
        for (_, channel, version), value in named.items()
    ]
    if len(rows) == 1:
        unit.change(sql.ADD_VALUE, rows[0])
    else:
        unit.insert(VALUES, sql.ADD_VALUE, rows)


def read(unit: Unit, thread_id: str, names: Collection[Name]) -> tuple[dict[Name, Content], dict[Name, CorruptData]]:
    """Return the values of those of these versions that have one, and the errors of those that cannot be rebuilt."""
    rows = _named(unit, thread_id, names)
    numbers: dict[Line, set[int]] = defaultdict(set)
    for row in rows:
        numbers[_line(row)].update(chain(row["anchor"], row["number"]))
    stored = _stored(unit, thread_id, numbers)
    rebuilt: dict[tuple[Line, int], bytes | CorruptData] = {}
    found, damaged = {}, {}
    for row in rows:
        at = (_line(row), row["number"])
        if at not in rebuilt:
            data = _rebuilt(stored[_line(row)], chain(row["anchor"], row["number"]))
            if data is None or (isinstance(data, bytes) and digest(data) != row["digest"]):
                key = (thread_id, *_name(row))
                data = CorruptData(str(VALUES.name), key, "body", problem="does not rebuild the value that was stored")
            rebuilt[at] = data
        value = rebuilt[at]
        if isinstance(value, CorruptData):
            damaged[_name(row)] = value
        else:
            found[_name(row)] = Content(row["format"], value)
    return found, damaged


def _name(row: NamedRow) -> Name:
    return row["namespace"], row["channel"], row["version"]


def _line(row: NamedRow | StoredRow) -> Line:
    return row["namespace"], row["channel"]


def _is_full(last: LastRow) -> bool:
    """True if the value behind this one is stored whole."""
    return last["number"] + 1 - last["anchor"] >= models.WHOLE_INTERVAL


def _named(unit: Unit, thread_id: str, names: Iterable[Name]) -> list[NamedRow]:
    wanted = [
        {"thread": thread_id, "namespace": namespace, "channel": channel, "version": version}
        for namespace, channel, version in names
    ]
    return unit.rows(sql.NAMED, {"wanted": as_list(wanted)}) if wanted else []


def _stored(unit: Unit, thread_id: str, numbers: Mapping[Line, Iterable[int]]) -> Mapping[Line, Stored]:
    """Return the stored rows of these numbers, as far as there are any."""
    found: dict[Line, dict[int, StoredRow | CorruptData]] = defaultdict(dict)
    wanted = [
        {"thread": thread_id, "namespace": namespace, "channel": channel, "number": number}
        for (namespace, channel), several in numbers.items()
        for number in several
    ]
    if not wanted:
        return found
    given = {"wanted": as_list(wanted)}
    try:
        for row in unit.rows(sql.STORED, given):
            found[_line(row)][row["number"]] = row
    except CorruptData:  # rare: then each row by itself
        several = unit.readable(sql.STORED, given)
        for at, one in enumerate(several.rows):
            if not isinstance(one, CorruptData):
                found[_line(one)][one["number"]] = one
            elif (place := several.columns(at, ("namespace", "channel", "number"))) is not None:
                found[place[0], place[1]][place[2]] = one
    return found


def _encoded(data: bytes, sha256: str, last: LastRow | None, stored: Stored) -> Row:
    """Return how a value is stored behind the last one of its channel. ``stored`` are the rows of its base."""
    if last is None:
        return {"number": 0, "anchor": 0, "encoding": "whole", "body": data}
    if sha256 == last["digest"]:
        return {"number": last["number"], "anchor": last["anchor"], "encoding": "same", "body": b""}
    number, anchor = last["number"] + 1, last["anchor"]
    if not _is_full(last):
        base = _rebuilt(stored, chain(anchor, number)[:-1])
        if not isinstance(base, bytes):
            _log.warning("a value of %r is stored whole, because those before cannot be rebuilt", last["channel"])
        else:
            change = change_between(base, data)
            if sum(_size(row) for row in stored.values()) + len(change) <= 2 * len(data):
                return {"number": number, "anchor": anchor, "encoding": "change", "body": change}
    return {"number": number, "anchor": number, "encoding": "whole", "body": data}


def _size(row: StoredRow | CorruptData) -> int:
    return 0 if isinstance(row, CorruptData) else len(row["body"])


def _rebuilt(stored: Stored, numbers: Sequence[int]) -> bytes | CorruptData | None:
    """Return the value of the last of these numbers, None where the rows do not give it, or why one cannot be read."""
    data = b""
    for number in numbers:
        row = stored.get(number)
        if isinstance(row, CorruptData):
            return row
        if row is None or (row["encoding"] == "whole") is not (number == numbers[0]):
            return None
        try:
            data = changed(data, row["body"]) if row["encoding"] == "change" else row["body"]
        except ValueError:
            return None
    return data


def _refuse_other(known: NamedRow, value: Content) -> None:
    if known["digest"] != digest(value.data) or known["format"] != value.format:
        raise AlreadyExists(models.VALUE, _name(known), problem="already exists with other content")


# Whole checkpoints, made of their rows, values and writes, in three statements for any number of them.


def whole(unit: Unit, rows: Sequence[WholeRow]) -> list[Checkpoint | CorruptData]:
    """Return these checkpoints of one thread; in place of one of which a part cannot be read, the error of that."""
    if not rows:
        return []
    thread_id = rows[0]["thread_id"]
    named = {(row["namespace"], *one) for row in rows for one in (row["versions"] or {}).items()}
    found, damaged = read(unit, thread_id, sorted(named))
    wanted = as_list([{"thread": thread_id, "namespace": row["namespace"], "id": row["id"]} for row in rows])
    writes, broken = _writes(unit, {"wanted": wanted})
    return [
        _damage(row, damaged, broken) or _made(row, found, tuple(writes[row["namespace"], row["id"]])) for row in rows
    ]


def _writes(
    unit: Unit, given: Row
) -> tuple[dict[tuple[str, str], list[CheckpointWrite]], dict[tuple[str, str], CorruptData]]:
    """Return the writes of checkpoints, and the errors of those that have one that cannot be read."""
    found: dict[tuple[str, str], list[CheckpointWrite]] = defaultdict(list)
    broken: dict[tuple[str, str], CorruptData] = {}
    try:
        for row in unit.rows(sql.WRITES_OF, given):
            found[row["namespace"], row["checkpoint_id"]].append(CheckpointWrite.of(row))
    except CorruptData:  # rare: then each row by itself
        several = unit.readable(sql.WRITES_OF, given)
        for at, one in enumerate(several.rows):
            if not isinstance(one, CorruptData):
                found[one["namespace"], one["checkpoint_id"]].append(CheckpointWrite.of(one))
                continue
            place = several.columns(at, ("namespace", "checkpoint_id"))
            if place is None:
                raise one from None
            broken[place[0], place[1]] = one
    return found, broken


def _damage(
    row: WholeRow, damaged: Mapping[Name, CorruptData], broken: Mapping[tuple[str, str], CorruptData]
) -> CorruptData | None:
    """Return why a checkpoint cannot be made of its parts, if so."""
    if row["versions"] is None:  # JSON null
        return CorruptData(str(models.CHECKPOINTS.name), row["id"], "versions")
    if damaged:
        named = ((row["namespace"], *one) for one in row["versions"].items())
        if (name := next((one for one in named if one in damaged), None)) is not None:
            return damaged[name]
    return broken.get((row["namespace"], row["id"])) if broken else None


def _made(row: WholeRow, found: dict[Name, Content], writes: tuple[CheckpointWrite, ...]) -> Checkpoint:
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
