"""Conversion between a runtime's dictionaries of messages, branches and sessions and this library's fields.

Nothing is stored here. The runtime's modes differ in one key of the outermost dictionary: ``node_metadata`` in mode
``db`` is ``metadata`` in ``json`` and ``python``. Inner objects (branches, messages, piles) have ``metadata`` in every
mode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import iso_time
from lastlight_state.conversations import similarity
from lastlight_state.errors import InvalidValue

_INNER = "metadata"
#: The key of the metadata in the outermost dictionary, by mode.
_METADATA = {"db": "node_metadata", "json": _INNER, "python": _INNER}
_PLAIN = ("id", "role", "content", "sender", "recipient", "channel", "embedding")
_OWN = ("id", "name", "user")
#: The key in ``extra`` under which an import keeps source columns that have no field. The runtime does not know it.
SOURCE = "_source"
#: The key in ``extra`` under which an import keeps refused values as text. The runtime does not know it either.
_ADAPTED = "adapted"
#: The ``extra`` of a session whose branches form a pile in the runtime.
BRANCHES_PILE: Mapping[str, Any] = {"branches": {"progression": {}}}
#: The key for the index in a pile of a system message that the pile's order does not hold.
_SYSTEM_AT = "_system_at"
#: The key for the order of a session's branches, within the kept parts of their pile.
_ORDER = "_order"
#: The keys of a runtime's message dictionary that have a field. Other keys are kept in ``extra``.
_KNOWN = frozenset({*_PLAIN, "created_at", "node_metadata", "metadata"})


def message_fields(mapping: Any, where: str = "message") -> dict[str, Any]:
    """Convert a message dictionary of any mode to the fields of a `NewMessage`. Unknown keys go to ``extra``.

    Raises `InvalidValue`.
    """
    given = _mapping(where, mapping)
    fields = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    for name in ("role", "content"):
        if name not in fields:
            raise InvalidValue(f"{where}.{name}", "must be given")
    return {**fields, **_times_and_metadata(where, given), "extra": _other_fields(given, _KNOWN)}


def message_mapping(values: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Convert a message's fields to a runtime's dictionary of the given mode. Known keys without value are left out."""
    fields = _complete_fields({name: values[name] for name in _PLAIN}, values, _METADATA[mode])
    embedding = fields.get("embedding")
    if embedding is not None:
        fields["embedding"] = similarity.unpack(embedding) if isinstance(embedding, bytes) else embedding
        fields["embedding"] = list(fields["embedding"])
    return {**_runtime_extra(values), **fields}


def branch_fields(mapping: Any, where: str) -> tuple[dict[str, Any], Any, list[Any]]:
    """Convert a branch dictionary to the fields of a `NewBranch`, its system message, and its messages in order.

    Unknown keys go to ``extra``. The parts of a pile other than its items and their order go to ``extra`` too, under
    the pile's name. Raises `InvalidValue`.
    """
    given = _mapping(where, mapping)
    system = given.get("system")
    fields, messages = _whole_fields(given, where, "messages", system)
    return fields, system, messages


def session_fields(mapping: Any, where: str = "session") -> tuple[dict[str, Any], list[Any]]:
    """Convert a session dictionary to the fields of a `NewSession`, and its branches' dictionaries.

    The order of the branches is kept in ``extra``. Raises `InvalidValue`.
    """
    fields, branches = _whole_fields(_mapping(where, mapping), where, "branches", None)
    extra = fields["extra"] or {}
    order = [_id_of(branch) for branch in branches]
    extra["branches"] = {**extra["branches"], _ORDER: order} if "branches" in extra else order
    return {**fields, "extra": extra}, branches


def messages_pile(*, has_system_outside: bool) -> dict[str, Any]:
    """Return the ``extra`` for a branch whose messages form a pile in the runtime.

    With ``has_system_outside`` the pile begins with a system message that its order does not hold.
    """
    return {"messages": {"progression": {}, **({_SYSTEM_AT: 0} if has_system_outside else {})}}


def branch_order(extra: Mapping[str, Any] | None) -> list[Any]:
    """Return the ids of a session's branches in the runtime's order, as kept in ``extra``. Empty if none is kept."""
    kept = (extra or {}).get("branches")
    found = kept.get(_ORDER) if isinstance(kept, Mapping) else kept
    return found if isinstance(found, list) else []


def branch_mapping(
    values: Mapping[str, Any], system: dict[str, Any] | str | None, messages: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Convert a branch and its messages to a runtime's dictionary, in the form used inside a session."""
    found = _whole_mapping(values, messages, "messages", system, _INNER)
    return found if system is None else {**found, "system": system}


def session_mapping(values: Mapping[str, Any], branches: Sequence[dict[str, Any]], mode: str) -> dict[str, Any]:
    """Convert a session and its branches to a runtime's dictionary of the given mode."""
    return _whole_mapping(values, branches, "branches", None, _METADATA[mode])


def seconds(values: Mapping[str, Any]) -> float:
    """Return a row's creation time in Unix seconds: the number that the caller gave, or else a computed one."""
    exact: float | None = values["created_at_unix"]
    moment: datetime = values["created_at"]
    return moment.timestamp() if exact is None else exact


def add_unix_time(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add ``created_at_unix`` to an argument group's fields: ``created_at`` if that is a number, else None."""
    moment = values["created_at"]
    return {**values, "created_at_unix": None if isinstance(moment, datetime) else moment}


def _complete_fields(fields: dict[str, Any], values: Mapping[str, Any], metadata: str) -> dict[str, Any]:
    """Add the creation time and the metadata to the fields. Leave out fields that are None."""
    if values["created_at"] is not None:
        fields["created_at"] = seconds(values)
    fields[metadata] = values["node_metadata"]
    return {name: value for name, value in fields.items() if value is not None}


def _runtime_extra(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's ``extra`` without the keys that imports add."""
    return {name: value for name, value in (values["extra"] or {}).items() if name not in (SOURCE, _ADAPTED)}


def _mapping(where: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidValue(where, f"expected a mapping, got {type(given).__name__}")
    if "node_metadata" in given and "metadata" in given:
        raise InvalidValue(where, "must not have both node_metadata and metadata")
    return given


def _times_and_metadata(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    metadata = given.get("node_metadata", given.get("metadata"))
    return {"node_metadata": metadata, "created_at": _moment(f"{where}.created_at", given.get("created_at"))}


def _other_fields(given: Mapping[str, Any], known: set[str] | frozenset[str]) -> dict[str, Any] | None:
    return {name: value for name, value in given.items() if name not in known} or None


def _whole_fields(given: Mapping[str, Any], where: str, parts: str, system: Any) -> tuple[dict[str, Any], list[Any]]:
    if given.get("id") is None:
        raise InvalidValue(f"{where}.id", "must be given")
    fields = {name: given[name] for name in _OWN if given.get(name) is not None}
    known = {*_OWN, "created_at", "node_metadata", "metadata", parts, *(("system",) if parts == "messages" else ())}
    extra = _other_fields(given, known) or {}
    pile = given.get(parts)
    if isinstance(pile, Mapping):
        items, extra[parts] = _split_pile(f"{where}.{parts}", pile, system)
    else:
        items = _items(f"{where}.{parts}", pile)
    return {**fields, **_times_and_metadata(where, given), "extra": extra or None}, items


def _whole_mapping(
    values: Mapping[str, Any],
    items: Sequence[dict[str, Any]],
    parts: str,
    system: dict[str, Any] | str | None,
    metadata: str,
) -> dict[str, Any]:
    extra = _runtime_extra(values)
    rest = extra.pop(parts, None)
    fields = _complete_fields({name: values[name] for name in _OWN}, values, metadata)
    return {**extra, **fields, parts: _make_pile(items, rest, system) if isinstance(rest, dict) else list(items)}


def _split_pile(where: str, pile: Mapping[str, Any], system: Any) -> tuple[list[Any], dict[str, Any]]:
    """Split a pile (``collections`` with a ``progression``) into its items, in order, and its other parts.

    If the pile has a system message that its order lacks, the other parts record its index.
    """
    rest = {name: value for name, value in pile.items() if name != "collections"}
    items = _items(f"{where}.collections", pile.get("collections"))
    if "metadata" in rest:
        rest["node_metadata"] = rest.pop("metadata")
    progression = rest.get("progression")
    if progression is None:
        return items, rest
    named = isinstance(progression, Mapping)
    order = _items(f"{where}.progression", progression.get("order") if named else progression)
    rest["progression"] = {name: value for name, value in progression.items() if name != "order"} if named else []
    ids = [_mapping(f"{where}.collections[{i}]", item).get("id") for i, item in enumerate(items)]
    outside = [i for i, one in enumerate(ids) if one not in set(order)]
    if outside:
        if len(outside) > 1 or ids[outside[0]] != _id_of(system):
            raise InvalidValue(f"{where}.progression", f"lacks {len(outside)} of the collections")
        rest[_SYSTEM_AT] = outside[0]
    by_id = dict(zip(ids, items, strict=True))
    for i, one in enumerate(order):
        if one not in by_id:
            raise InvalidValue(f"{where}.progression[{i}]", "names an item that is not in the collections")
    return [by_id[one] for one in order], rest


def _items(where: str, given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise InvalidValue(where, f"expected a list, got {type(given).__name__}")
    return list(given)


def _id_of(system: Any) -> Any:
    return system.get("id") if isinstance(system, Mapping) else system


def _make_pile(
    items: Sequence[dict[str, Any]], rest: Mapping[str, Any], system: dict[str, Any] | str | None
) -> dict[str, Any]:
    """Return a pile: ``collections`` with every item once, and a ``progression`` with the order of their ids."""
    pile = {name: value for name, value in rest.items() if name != _ORDER}
    if "node_metadata" in pile:
        pile[_INNER] = pile.pop("node_metadata")
    if pile.get("progression") is None:
        return {**pile, "collections": list(items)}
    order = [item["id"] for item in items]
    progression = pile["progression"]
    pile["progression"] = {**progression, "order": order} if isinstance(progression, Mapping) else order
    collections = list({item["id"]: item for item in items}.values())
    at = pile.pop(_SYSTEM_AT, None)
    if at is not None and isinstance(system, dict):
        collections.insert(at, system)
    return {**pile, "collections": collections}


def _moment(where: str, value: Any) -> Any:
    """Parse a text as an ISO time. Any other value is returned unchanged. Raises `InvalidValue`."""
    if not isinstance(value, str):
        return value
    try:
        return iso_time(value)
    except ValueError:
        raise InvalidValue(where, "expected a time") from None


# ---- Items of an agent framework, each the content of a message ------------------------------------------------------

#: The only key of a content that holds an item as JSON text.
_TEXT = "json_text"


def pack_item(item: Any) -> Any:
    """Convert an agent framework's item to the content of a message.

    Some values cannot be stored in a database: NUL characters, lone surrogates, NaN, large integers, keys other than
    text. An item with such values becomes an object that has the item as JSON text. Raises `TypeError` for a value that
    JSON cannot represent.
    """
    try:
        codec.encode_bytes("item", item)
    except InvalidValue:
        return {_TEXT: json.dumps(item)}
    return {_TEXT: json.dumps(item)} if item is None or _is_packed(item) else item


def unpack_item(content: Any) -> Any:
    """Convert a message content that `pack_item` returned back to the original item."""
    return json.loads(content[_TEXT]) if _is_packed(content) else content


def role_of(item: Any) -> str:
    """Return an item's role, or else its type (a tool call has no role), or else ``"item"``."""
    named = [item.get("role"), item.get("type")] if isinstance(item, Mapping) else []
    return next((one for one in named if isinstance(one, str) and 0 < len(one) <= 64 and one.isprintable()), "item")


def _is_packed(content: Any) -> bool:
    return isinstance(content, dict) and len(content) == 1 and isinstance(content.get(_TEXT), str)
