"""Stores and rebuilds channels' values: whole, as changes of earlier values, or as equal to the last value.

The values of a channel are numbered. ``anchor`` is the number of the whole value from which a value is rebuilt. The
k-th value after the anchor is stored as a change of the value whose k has the lowest bit cleared: 7 against 6, 6
against 4, 4 against 0. So rebuilding a value reads at most seven rows, whose numbers are known, and at most about twice
its bytes. For a value that grows a little with each step, storage grows with the logarithm of the interval, not with
its length. A value that equals the channel's last value has a row without bytes.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.checkpoints.changes import apply_changes, change_between
from lastlight_state.checkpoints.checks import Content
from lastlight_state.checkpoints.models import VALUES
from lastlight_state.checkpoints.records import NamedValue, StoredValue
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, CorruptData

_log = logging.getLogger("lastlight_state.checkpoints")

#: The key of a value within a thread: namespace, channel and version.
Name: TypeAlias = tuple[str, str, str]
#: The key of a channel within a thread: namespace and channel.
Line: TypeAlias = tuple[str, str]
#: The stored rows of a channel by their numbers, or why one cannot be read.
Stored: TypeAlias = Mapping[int, "StoredValue | CorruptData"]


_NAME = ("thread_id", "namespace", "channel", "version")
#: The columns of `statements.BEFORE` that describe the channel, and last the number of the base row.
_BEFORE = ("new_channel", "known_format", "known_digest", "last_number", "last_anchor", "last_digest", "number")
#: Where the columns of the base begin in such a row.
_BASE = len(_BEFORE) - 1


class Last(NamedTuple):
    """The last stored value of a channel: its number, its anchor's number, and its SHA-256."""

    number: int
    anchor: int
    digest: str


class Before(NamedTuple):
    """Stored data of a channel before a put: format and digest of the new version, last value, and base rows."""

    known: tuple[str, str] | None
    last: Last | None
    stored: dict[int, StoredValue | CorruptData]


def digest(data: bytes) -> str:
    """Return the SHA-256 checksum of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def chain(anchor: int, number: int) -> list[int]:
    """Return the numbers of the values from which value ``number`` is rebuilt.

    The whole value comes first, ``number`` last.
    """
    found = [number]
    while (behind := found[-1] - anchor) > 0:
        found.append(anchor + (behind & (behind - 1)))
    return found[::-1]


def new_rows(
    unit: Unit,
    thread_id: str,
    namespace: str,
    versions: Mapping[str, str],
    values: Mapping[str, Content],
    *,
    keep: bool = False,
) -> list[Row]:
    """Return the rows to insert for new values of channels in a locked thread.

    A version that already has a value gets no row. If that value differs, raises `AlreadyExists` unless ``keep``.
    """
    digests = {channel: digest(value.data) for channel, value in values.items()}
    place = {"thread": thread_id, "namespace": namespace}
    wanted = [
        {**place, "channel": channel, "version": versions[channel], "digest": sha256}
        for channel, sha256 in digests.items()
    ]
    before = _before(unit, {"wanted": as_list(wanted)}) if wanted else {}
    rows = []
    for channel, value in values.items():
        found, name = before[channel], (namespace, channel, versions[channel])
        if found.known is None:
            encoded = _encode_value(channel, value.data, digests[channel], found)
            shown = {"format": value.format, "size": len(value.data), "digest": digests[channel]}
            rows.append({**dict(zip(_NAME, (thread_id, *name), strict=True)), **shown, **encoded})
        elif not keep and found.known != (value.format, digests[channel]):
            raise AlreadyExists(models.VALUE, name, problem="already exists with other content")
    return rows


def add(unit: Unit, rows: Sequence[Row]) -> None:
    """Insert the given rows of values."""
    if len(rows) == 1:
        unit.change(sql.ADD_VALUE, rows[0])
    elif rows:
        unit.insert(VALUES, sql.ADD_VALUE, rows)


def read(unit: Unit, thread_id: str, names: Collection[Name]) -> tuple[dict[Name, Content], dict[Name, CorruptData]]:
    """Read the values of the named versions. Return the values, and the errors of values that cannot be rebuilt.

    A version without a value is left out.
    """
    rows = _named_values(unit, thread_id, names)
    numbers: dict[Line, set[int]] = defaultdict(set)
    for row in rows:
        numbers[_line(row)].update(chain(row.anchor, row.number))
    stored = _stored_rows(unit, thread_id, numbers)
    return rebuilt(rows, stored)


def rebuilt(
    rows: Iterable[NamedValue], stored: Mapping[Line, Stored]
) -> tuple[dict[Name, Content], dict[Name, CorruptData]]:
    """Rebuild values from stored rows. Return the values, and the errors of values that cannot be rebuilt."""
    made: dict[tuple[Line, int], bytes | CorruptData] = {}
    found, damaged = {}, {}
    for row in rows:
        at = (_line(row), row.number)
        if at not in made:
            data = _rebuilt(stored.get(_line(row), {}), chain(row.anchor, row.number))
            if data is None or (isinstance(data, bytes) and digest(data) != row.digest):
                key = (row.thread_id, *_name(row))
                data = CorruptData(str(VALUES.name), key, "body", problem="does not rebuild the value that was stored")
            made[at] = data
        value = made[at]
        if isinstance(value, CorruptData):
            damaged[_name(row)] = value
        else:
            found[_name(row)] = Content(row.format, value)
    return found, damaged


def _name(row: NamedValue) -> Name:
    return row.namespace, row.channel, row.version


def _line(row: NamedValue | StoredValue) -> Line:
    return row.namespace, row.channel


def _before(unit: Unit, given: Row) -> dict[str, Before]:
    """Read the stored data of the channels that get new values. Return it by channel."""
    found: dict[str, Before] = {}
    try:
        for row in unit.rows(sql.BEFORE, given):
            of_base = StoredValue._make(row[_BASE:])
            _note(found, [*row[:_BASE], of_base.number], of_base)
    except CorruptData:  # rare: then each row by itself
        found, several = {}, unit.rows_or_errors(sql.BEFORE, given)
        for at, one in enumerate(several.rows):
            seen = several.columns(at, _BEFORE)
            if seen is None:
                raise cast(CorruptData, one) from None
            _note(found, seen, one if isinstance(one, CorruptData) else StoredValue._make(one[_BASE:]))
    return found


def _note(found: dict[str, Before], seen: Sequence[Any], row: StoredValue | CorruptData) -> None:
    channel, known_format, known_digest, number, anchor, last_digest, of_base = seen
    if channel not in found:
        known = None if known_digest is None else (known_format, known_digest)
        last = None if number is None else Last(number, anchor, last_digest)
        found[channel] = Before(known, last, {})
    if of_base is not None:
        found[channel].stored[of_base] = row


def _named_values(unit: Unit, thread_id: str, names: Iterable[Name]) -> list[NamedValue]:
    wanted = [
        {"thread": thread_id, "namespace": namespace, "channel": channel, "version": version}
        for namespace, channel, version in names
    ]
    return unit.rows(sql.NAMED, {"wanted": as_list(wanted)}) if wanted else []


def _stored_rows(unit: Unit, thread_id: str, numbers: Mapping[Line, Iterable[int]]) -> Mapping[Line, Stored]:
    """Return the stored rows of these numbers, as far as there are any."""
    found: dict[Line, dict[int, StoredValue | CorruptData]] = defaultdict(dict)
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
            found[_line(row)][row.number] = row
    except CorruptData:  # rare: then each row by itself
        several = unit.rows_or_errors(sql.STORED, given)
        for at, one in enumerate(several.rows):
            if not isinstance(one, CorruptData):
                found[_line(one)][one.number] = one
            elif (place := several.columns(at, ("namespace", "channel", "number"))) is not None:
                found[place[0], place[1]][place[2]] = one
    return found


def _encode_value(channel: str, data: bytes, sha256: str, before: Before) -> Row:
    """Return number, anchor, encoding and body for a new value that follows the channel's last value."""
    last = before.last
    if last is None:
        return {"number": 0, "anchor": 0, "encoding": "whole", "body": data}
    if sha256 == last.digest:
        return {"number": last.number, "anchor": last.anchor, "encoding": "same", "body": b""}
    number = last.number + 1
    if number - last.anchor < models.WHOLE_INTERVAL:
        base = _rebuilt(before.stored, chain(last.anchor, number)[:-1])
        if not isinstance(base, bytes):
            _log.warning("a value of %r is stored whole, because those before cannot be rebuilt", channel)
        else:
            change = change_between(base, data)
            if sum(map(_size, before.stored.values())) + len(change) <= 2 * len(data):
                return {"number": number, "anchor": last.anchor, "encoding": "change", "body": change}
    return {"number": number, "anchor": number, "encoding": "whole", "body": data}


def _size(row: StoredValue | CorruptData) -> int:
    return 0 if isinstance(row, CorruptData) else len(row.body)


def _rebuilt(stored: Stored, numbers: Sequence[int]) -> bytes | CorruptData | None:
    """Rebuild the value that has the last of these numbers. Return None if rows are missing or do not fit together.

    If a row cannot be read, returns its error.
    """
    found: list[bytes] = []
    for number in numbers:
        row = stored.get(number)
        if isinstance(row, CorruptData):
            return row
        if row is None or row.encoding != ("change" if found else "whole"):
            return None
        found.append(row.body)
    try:
        return apply_changes(*found)
    except ValueError:
        return None
