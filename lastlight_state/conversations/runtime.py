"""A runtime's dictionaries of messages, and what they become here. Pure: nothing is stored.

The modes of the runtime differ in one key: ``node_metadata`` of mode ``db`` is ``metadata`` in ``json`` and ``python``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state.errors import InvalidValue

METADATA = {"db": "node_metadata", "json": "metadata", "python": "metadata"}
_PLAIN = ("id", "role", "content", "sender", "recipient", "channel", "embedding")
#: Of the record, but not of the runtime. Such a key in a dictionary is not known to the runtime either.
_KNOWN = frozenset({*_PLAIN, "created_at", "node_metadata", "metadata"})


def message_fields(mapping: Any) -> dict[str, Any]:
    """The fields of a `NewMessage`, of a dictionary of any mode. Keys that are not known are its ``extra``."""
    if not isinstance(mapping, Mapping):
        raise InvalidValue("message", f"expected a mapping, got {type(mapping).__name__}")
    given = mapping
    if "node_metadata" in given and "metadata" in given:
        raise InvalidValue("message", "must not have both node_metadata and metadata")
    fields = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    for name in ("role", "content"):
        if name not in fields:
            raise InvalidValue(f"message.{name}", "must be given")
    fields["node_metadata"] = given.get("node_metadata", given.get("metadata"))
    fields["created_at"] = _moment(given.get("created_at"))
    extra = {name: value for name, value in given.items() if name not in _KNOWN}
    return {**fields, "extra": extra or None}


def message_mapping(values: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """The runtime's dictionary of a stored message: known keys without a value are left out."""
    fields: dict[str, Any] = {name: values[name] for name in _PLAIN}
    fields["created_at"] = seconds(values)
    fields[METADATA[mode]] = values["node_metadata"]
    if fields["embedding"] is not None:
        fields["embedding"] = list(fields["embedding"])
    return {**(values["extra"] or {}), **{name: value for name, value in fields.items() if value is not None}}


def seconds(values: Mapping[str, Any]) -> float:
    """When a row was created, in Unix seconds: the caller's own number where there is one."""
    exact: float | None = values["created_at_unix"]
    moment: datetime = values["created_at"]
    return moment.timestamp() if exact is None else exact


def _moment(value: Any) -> Any:
    """A time as a `NewMessage` takes it: of the text of a time the time itself."""
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise InvalidValue("message.created_at", "expected a time") from None
