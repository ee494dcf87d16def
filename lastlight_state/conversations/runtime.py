"""A runtime's dictionaries of messages, branches and sessions, and what they become here. Pure: nothing is stored.

The modes of the runtime differ in one key of the outermost dictionary: ``node_metadata`` of mode ``db`` is ``metadata``
in ``json`` and ``python``. What lies inside, such as branches, messages and piles, has ``metadata`` in all modes.
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
#: How the outermost dictionary of each mode calls the metadata.
_METADATA = {"db": "node_metadata", "json": _INNER, "python": _INNER}
_PLAIN = ("id", "role", "content", "sender", "recipient", "channel", "embedding")
_OWN = ("id", "name", "user")
#: What an import keeps in ``extra`` of columns of its source that have no field. The runtime knows none of them.
SOURCE = "_source"
#: The same for values that were refused and are kept as text.
_ADAPTED = "adapted"
#: The ``extra`` of a session whose branches the runtime has in a pile.
BRANCHES_PILE: Mapping[str, Any] = {"branches": {"progression": {}}}
#: Where in a pile the system message stood that its order does not hold.
_SYSTEM_AT = "_system_at"
#: The order of a session's branches, among what is kept of their pile.
_ORDER = "_order"
#: Of the record, but not of the runtime. Such a key in a dictionary is not known to the runtime either.
_KNOWN = frozenset({*_PLAIN, "created_at", "node_metadata", "metadata"})


def message_fields(mapping: Any, where: str = "message") -> dict[str, Any]:
    """Return the fields of a `NewMessage`, of a dictionary of any mode. Keys that are not known are its ``extra``."""
    given = _mapping(where, mapping)
    fields = {name: given[name] for name in _PLAIN if given.get(name) is not None}
    for name in ("role", "content"):
        if name not in fields:
            raise InvalidValue(f"{where}.{name}", "must be given")
    return {**fields, **_times_and_metadata(where, given), "extra": _others(given, _KNOWN)}


def message_mapping(values: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the runtime's dictionary of a message. Known keys without a value are left out."""
    fields = _said({name: values[name] for name in _PLAIN}, values, _METADATA[mode])
    embedding = fields.get("embedding")
    if embedding is not None:
        fields["embedding"] = similarity.unpack(embedding) if isinstance(embedding, bytes) else embedding
        fields["embedding"] = list(fields["embedding"])
    return {**_runtime_extra(values), **fields}


def branch_fields(mapping: Any, where: str) -> tuple[dict[str, Any], Any, list[Any]]:
    """Return the fields of a `NewBranch`, its system message, and its messages in their order.

    Keys that are not known are its ``extra``, and so is what a pile says beside its items and their order, under the
    name of the pile.
    """
    given = _mapping(where, mapping)
    system = given.get("system")
    fields, messages = _whole_fields(given, where, "messages", system)
    return fields, system, messages


def session_fields(mapping: Any, where: str = "session") -> tuple[dict[str, Any], list[Any]]:
    """Return the fields of a `NewSession`, and its branches. Their order is kept in ``extra``."""
    fields, branches = _whole_fields(_mapping(where, mapping), where, "branches", None)
    extra = fields["extra"] or {}
    order = [_id_of(branch) for branch in branches]
    extra["branches"] = {**extra["branches"], _ORDER: order} if "branches" in extra else order
    return {**fields, "extra": extra}, branches


def messages_pile(*, has_system_outside: bool) -> dict[str, Any]:
    """Return the ``extra`` of a branch whose messages the runtime has in a pile, perhaps with a system message first.

    ``has_system_outside`` says that the order does not hold the system message.
    """
    return {"messages": {"progression": {}, **({_SYSTEM_AT: 0} if has_system_outside else {})}}


def branch_order(extra: Mapping[str, Any] | None) -> list[Any]:
    """Return the ids of a session's branches in the order in which the runtime had them, as ``extra`` says."""
    kept = (extra or {}).get("branches")
    found = kept.get(_ORDER) if isinstance(kept, Mapping) else kept
    return found if isinstance(found, list) else []


def branch_mapping(
    values: Mapping[str, Any], system: dict[str, Any] | str | None, messages: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the runtime's dictionary of a branch with its messages, as it stands inside a session."""
    found = _whole_mapping(values, messages, "messages", system, _INNER)
    return found if system is None else {**found, "system": system}


def session_mapping(values: Mapping[str, Any], branches: Sequence[dict[str, Any]], mode: str) -> dict[str, Any]:
    """Return the runtime's dictionary of a session with its branches."""
    return _whole_mapping(values, branches, "branches", None, _METADATA[mode])


def seconds(values: Mapping[str, Any]) -> float:
    """Return when a row was created, in Unix seconds: the caller's own number where there is one."""
    exact: float | None = values["created_at_unix"]
    moment: datetime = values["created_at"]
    return moment.timestamp() if exact is None else exact


def timed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an argument group as those of a row: a time that is a number is the caller's own."""
    moment = values["created_at"]
    return {**values, "created_at_unix": None if isinstance(moment, datetime) else moment}


def _said(fields: dict[str, Any], values: Mapping[str, Any], metadata: str) -> dict[str, Any]:
    """Return the fields, the time of creation and the metadata, without those that have no value."""
    if values["created_at"] is not None:
        fields["created_at"] = seconds(values)
    fields[metadata] = values["node_metadata"]
    return {name: value for name, value in fields.items() if value is not None}


def _runtime_extra(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``extra`` without what an import keeps there."""
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


def _others(given: Mapping[str, Any], known: set[str] | frozenset[str]) -> dict[str, Any] | None:
    return {name: value for name, value in given.items() if name not in known} or None


def _whole_fields(given: Mapping[str, Any], where: str, parts: str, system: Any) -> tuple[dict[str, Any], list[Any]]:
    if given.get("id") is None:
        raise InvalidValue(f"{where}.id", "must be given")
    fields = {name: given[name] for name in _OWN if given.get(name) is not None}
    known = {*_OWN, "created_at", "node_metadata", "metadata", parts, *(("system",) if parts == "messages" else ())}
    extra = _others(given, known) or {}
    pile = given.get(parts)
    if isinstance(pile, Mapping):
        items, extra[parts] = _unpiled(f"{where}.{parts}", pile, system)
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
    fields = _said({name: values[name] for name in _OWN}, values, metadata)
    return {**extra, **fields, parts: _piled(items, rest, system) if isinstance(rest, dict) else list(items)}


def _unpiled(where: str, pile: Mapping[str, Any], system: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the items of a pile in order, and where a system message stood outside the order."""
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


def _piled(
    items: Sequence[dict[str, Any]], rest: Mapping[str, Any], system: dict[str, Any] | str | None
) -> dict[str, Any]:
    """Return a pile of these items: each once, and their order."""
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
    """Return a time as an argument group takes it: of the text of a time the time itself."""
    if not isinstance(value, str):
        return value
    try:
        return iso_time(value)
    except ValueError:
        raise InvalidValue(where, "expected a time") from None


# ---- Items of an agent framework, each the content of a message ------------------------------------------------------

#: The one member of a content that is the text of an item's JSON.
_TEXT = "json_text"


def packed(item: Any) -> Any:
    """Return the content of a message for an item of JSON.

    What JSON holds and a database does not (NUL characters, halves of pairs, NaN, greater integers, keys that are no
    text) is stored as the text of the item's JSON. Raises `TypeError` for what is no JSON at all.
    """
    try:
        codec.encode_bytes("item", item)
    except InvalidValue:
        return {_TEXT: json.dumps(item)}
    return {_TEXT: json.dumps(item)} if item is None or _is_packed(item) else item


def unpacked(content: Any) -> Any:
    """Return the item of a content that `packed` made."""
    return json.loads(content[_TEXT]) if _is_packed(content) else content


def role_of(item: Any) -> str:
    """Return the role of an item, or its type where it has none, as with a call of a tool."""
    named = [item.get("role"), item.get("type")] if isinstance(item, Mapping) else []
    return next((one for one in named if isinstance(one, str) and 0 < len(one) <= 64 and one.isprintable()), "item")


def _is_packed(content: Any) -> bool:
    return isinstance(content, dict) and len(content) == 1 and isinstance(content.get(_TEXT), str)
