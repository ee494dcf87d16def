"""Checks of callers' arguments about checkpoints, made before any statement is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lastlight_state import codec
from lastlight_state.checkpoints import models
from lastlight_state.checkpoints.models import CHECKPOINTS, THREADS, VALUES, WRITES
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue, PayloadTooLarge

# Argument groups of checkpoints.


class Content(NamedTuple):
    """Opaque bytes, with the caller's name for their format."""

    format: str
    data: bytes


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint to store.

    ``versions`` has the version of each channel, and ``values`` the values of the new versions. All checkpoints with
    the same version of a channel share its value. A version may have no value. ``run_ref`` is the caller's name for the
    run that made the checkpoint; checkpoints can be deleted by it. ``metadata`` is a JSON object by which lists can be
    filtered.
    """

    id: str
    content: Content
    versions: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Content] = field(default_factory=dict)
    namespace: str = ""
    parent_id: str | None = None
    run_ref: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True)
class NewWrite:
    """A task's write to a channel. ``idx`` is its index among the writes of the task, and may be negative."""

    idx: int
    channel: str
    content: Content
    path: str = ""


_THREAD, _CHECKPOINT, _VALUE, _WRITE = map(limits_of, (THREADS, CHECKPOINTS, VALUES, WRITES))
_SCALARS = (str, int, float, bool, type(None))


class Draft(NamedTuple):
    """A checked checkpoint: its row (without thread and number), its versions, and its new values by channel."""

    row: Row
    versions: Mapping[str, str]
    values: Mapping[str, Content]


def place(key: Any, scope: Any) -> Row:
    """Check the key and scope of a thread to write to, and return them as parameters. Raises `InvalidValue`."""
    return {"key": valid.identifier("thread", key, _THREAD.key), "scope": valid.content("scope", scope, _THREAD.scope)}


def sought_place(key: Any, scope: Any) -> Row:
    """Check the key and scope of a thread to look up, and return them as parameters. Raises `InvalidValue`."""
    return {"key": valid.lookup_text("thread", key), "scope": valid.lookup_text("scope", scope)}


def namespace(given: Any) -> str:
    """Check the name of a namespace, and return it. The empty name is the thread's main namespace."""
    return valid.content("namespace", given, _CHECKPOINT.namespace)


def user(given: str | None) -> str | None:
    """Check the name of a user, and return it. None is allowed."""
    return valid.optional("user", given, _THREAD.user)


def end(now: datetime, ttl: Any) -> datetime | None:
    """Return the time at which a thread with the time to live ``ttl`` expires. Return None if ``ttl`` is None."""
    if ttl is None:
        return None
    lasting = valid.duration("ttl", ttl, least=timedelta(milliseconds=1))
    try:
        return now + lasting
    except OverflowError:
        raise InvalidValue("ttl", "must end before the year 10000") from None


def draft(given: Any, now: datetime) -> Draft:
    """Check a checkpoint to store, and return its columns and values. Raises `InvalidValue` and `PayloadTooLarge`."""
    new = valid.argument_group("checkpoint", given, NewCheckpoint)
    body = content("content", new.content, _CHECKPOINT.body)
    versions = _versions(new.versions)
    row: Row = {
        "namespace": namespace(new.namespace),
        "id": valid.identifier("id", new.id, _CHECKPOINT.id),
        "parent_id": valid.optional("parent_id", new.parent_id, _CHECKPOINT.parent_id),
        "run_ref": valid.optional("run_ref", new.run_ref, _CHECKPOINT.run_ref),
        "created_at": now,
        "format": body.format,
        "metadata": _metadata(new.metadata),
        "versions": codec.encode("versions", versions, max_bytes=_CHECKPOINT.versions),
        "body": body.data,
    }
    return Draft(row, versions, _values(new.values, versions))


def writes(given: Any) -> list[Row]:
    """Check the writes of one call. Return a row for each, without the columns that all of them share.

    Raises `InvalidValue` and `PayloadTooLarge`.
    """
    valid.at_most("writes", listed := valid.several("writes", given), models.MANY)
    rows = [_write(f"writes[{at}]", one) for at, one in enumerate(listed)]
    if len({row["idx"] for row in rows}) != len(rows):
        raise InvalidValue("writes", "two of them have the same idx")
    _refuse_together("writes", sum(len(row["body"]) for row in rows))
    return rows


def run_refs(given: Any) -> list[str]:
    """Check the names of runs whose checkpoints should be deleted. Return them sorted and without duplicates."""
    valid.at_most("run_refs", listed := valid.several("run_refs", given), models.MANY)
    return sorted({valid.identifier("run_refs", one, _CHECKPOINT.run_ref) for one in listed})


def channels(given: Any) -> frozenset[str]:
    """Check names of channels, and return them as a set."""
    return frozenset(valid.identifier("channels", one, _VALUE.channel) for one in valid.several("channels", given))


def members(given: Any) -> str | None:
    """Check the filter ``where`` on checkpoints' metadata, and return it as JSON text. None means no filter."""
    if given is None or valid.argument_group("where", given, dict) == {}:
        return None
    for name, value in given.items():
        if not isinstance(value, _SCALARS):
            raise InvalidValue(f"where.{name!s:.80}", "expected text, a number, True, False or None")
    return codec.encode("where", given, max_bytes=_CHECKPOINT.metadata)


def content(where: str, given: Any, most: int) -> Content:
    """Check a `Content`, or a pair of format and bytes, and return it as a `Content`.

    Raises `InvalidValue`, and `PayloadTooLarge` for more than ``most`` bytes.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise InvalidValue(where, f"expected a Content, got {type(given).__name__}")
    known, data = given
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidValue(f"{where}.data", f"expected bytes, got {type(data).__name__}")
    if len(data) > most:
        raise PayloadTooLarge(f"{where}.data", limit=most, actual=len(data))
    return Content(valid.identifier(f"{where}.format", known, _CHECKPOINT.format), bytes(data))


def _versions(given: Any) -> dict[str, str]:
    found = _mapping("versions", given)
    return {
        valid.identifier("versions", name, _VALUE.channel): valid.identifier(
            f"versions.{name:.80}", version, _VALUE.version
        )
        for name, version in found.items()
    }


def _values(given: Any, versions: Mapping[str, str]) -> dict[str, Content]:
    values = {}
    for name, value in sorted(_mapping("values", given).items()):
        if name not in versions:
            raise InvalidValue(f"values.{name!s:.80}", "has no version in versions")
        values[name] = content(f"values.{name:.80}", value, _VALUE.body)
    _refuse_together("values", sum(len(value.data) for value in values.values()))
    return values


def _mapping(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidValue(where, f"expected a mapping, got {type(given).__name__}")
    valid.at_most(where, given, models.MANY)
    for name in given:
        if not isinstance(name, str):
            raise InvalidValue(where, f"names must be text, got {type(name).__name__}")
    return dict(given)


def _metadata(given: Any) -> str | None:
    if given is None:
        return None
    return codec.encode("metadata", valid.argument_group("metadata", given, dict), max_bytes=_CHECKPOINT.metadata)


def _write(where: str, given: Any) -> Row:
    new = valid.argument_group(where, given, NewWrite)
    body = content(f"{where}.content", new.content, _WRITE.body)
    return {
        "idx": valid.number(f"{where}.idx", new.idx, least=-(2**31), most=2**31),
        "path": valid.content(f"{where}.path", new.path, _WRITE.path),
        "channel": valid.identifier(f"{where}.channel", new.channel, _WRITE.channel),
        "format": body.format,
        "body": body.data,
    }


def _refuse_together(where: str, size: int) -> None:
    if size > models.TOGETHER_BYTES:
        raise PayloadTooLarge(where, limit=models.TOGETHER_BYTES, actual=size)
