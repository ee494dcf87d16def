"""Frames as text, and deltas between frames. Pure functions.

A tree is ``None``, a text ``{"kind": "text", "text": ...}``, or an element ``{"kind": "element", "tag": ..., "props":
{...}, "children": [...]}``. Trees are equal if their canonical texts are equal: ``1``, ``1.0`` and ``True`` are three
values.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from lastlight_state import codec
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.journal.models import FRAME_DEPTH, FRAMES
from lastlight_state.journal.records import FrameDelta

# Rendering a tree as XML text for reading. Characters that XML cannot hold are replaced.

_UNFIT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NO_BEGINNING = re.compile(r"[^A-Za-z_]")


def render(tree: Any) -> str:
    """Return the tree as well-formed XML: ``<null/>`` for None, ``<text>…</text>`` for a tree that is a text."""
    if tree is None:
        return "<null/>"
    return _render_node(tree) if tree["kind"] == "element" else f"<text>{_text(tree['text'])}</text>"


def _render_node(node: Any) -> str:
    if node["kind"] == "text":
        return _text(node["text"])
    tag = _name(node["tag"])
    attributes: dict[str, str] = {}
    for key, value in node["props"].items():
        name = _name(key)
        while name in attributes:
            name += "_"
        attributes[name] = quoteattr(_fit(value if isinstance(value, str) else codec.encode_sound(value).decode()))
    listed = "".join(f" {name}={value}" for name, value in attributes.items())
    children = "".join(map(_render_node, node["children"]))
    return f"<{tag}{listed}>{children}</{tag}>" if children else f"<{tag}{listed}/>"


def _text(text: str) -> str:
    return escape(_fit(text), {"\r": "&#13;"})


def _fit(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)


def _name(name: str) -> str:
    fit = _NAME.sub("_", name)
    return f"_{fit}" if not fit or _NO_BEGINNING.match(fit) or fit[:3].lower() == "xml" else fit


_LIMITS = limits_of(FRAMES)

Op: TypeAlias = dict[str, Any]
Path: TypeAlias = list[Any]

VERSION = 1
_TEXT, _ELEMENT = {"kind", "text"}, {"kind", "tag", "props", "children"}


def canonical(tree: Any) -> str:
    """Return the canonical text of a tree.

    Raises `InvalidValue` with the path of an invalid part of the tree, `PayloadTooLarge`.
    """
    return codec.encode(
        "tree", _canonical_node(tree, "tree", FRAME_DEPTH), max_bytes=_LIMITS.body, max_depth=2 * FRAME_DEPTH
    )


def digest(text: str) -> str:
    """Return the SHA-256 digest of a canonical text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def diff(previous: Any, following: Any) -> FrameDelta:
    """Return the delta that turns ``previous`` into ``following``. It has no operations for equal trees."""
    return diff_of_texts(canonical(previous), canonical(following))


def diff_of_texts(previous: str, following: str) -> FrameDelta:
    """Return the delta that turns one tree into another, both given as canonical texts."""
    return FrameDelta(ops=tuple(_changes(codec.decode(previous), codec.decode(following), [], None, _Shapes())))


def apply(previous: Any, delta: FrameDelta) -> Any:
    """Return the tree after the delta. Raises `InvalidValue` if the delta does not fit the tree."""
    root = {"tree": codec.decode(canonical(previous))}
    for op in delta.ops:
        _apply(root, op)
    return codec.decode(canonical(root["tree"]))


def replay_deltas(tree: Any, deltas: Iterable[str]) -> Any:
    """Apply these encoded deltas to a tree in place, and return the tree.

    Raises `InvalidValue` if a delta does not fit.
    """
    root = {"tree": tree}
    for text in deltas:
        for op in decode_delta(text).ops:
            _apply(root, op)
    return root["tree"]


def encode_delta(delta: FrameDelta) -> str:
    """Return a delta as JSON text."""
    return codec.encode_sound({"version": VERSION, "ops": list(delta.ops)}).decode()


def decode_delta(text: str) -> FrameDelta:
    """Return the delta that a JSON text holds. Raises `InvalidValue` for any other text."""
    try:
        found = codec.decode(text)
    except ValueError:
        raise _bad("is no JSON") from None
    if not isinstance(found, dict) or set(found) != {"version", "ops"}:
        raise _bad("must have a version and ops alone")
    if found["version"] != VERSION or isinstance(found["version"], bool):
        raise _bad("is of another version")
    if not isinstance(found["ops"], list):
        raise _bad("must have a list of ops")
    return FrameDelta(ops=tuple(_check_op(op) for op in found["ops"]))


def _canonical_node(node: Any, path: str, room: int) -> Any:
    """Return a checked copy of the node with its keys in canonical order.

    ``room`` is how many more levels are allowed. Raises `InvalidValue` with the path of an invalid part.
    """
    if node is None and path == "tree":
        return None
    if room <= 0:
        raise InvalidValue(path, "must not be nested deeper than the limit, or contain a cycle")
    if not isinstance(node, dict):
        raise InvalidValue(path, f"expected an element or a text, got {type(node).__name__}")
    kind = node.get("kind")
    if kind == "text" and set(node) == _TEXT and isinstance(node["text"], str):
        return {"kind": "text", "text": node["text"]}
    if kind != "element" or not set(node) <= _ELEMENT or not isinstance(node.get("tag"), str):
        raise InvalidValue(path, "expected an element with a tag, or a text, and no other keys")
    props, children = node.get("props", {}), node.get("children", [])
    if not isinstance(props, dict):
        raise InvalidValue(f"{path}.props", f"expected an object, got {type(props).__name__}")
    if not isinstance(children, list | tuple):
        raise InvalidValue(f"{path}.children", f"expected a list, got {type(children).__name__}")
    return {
        "kind": "element",
        "tag": node["tag"],
        "props": _sort_keys(props, f"{path}.props", room),
        "children": [_canonical_node(child, f"{path}.children[{i}]", room - 1) for i, child in enumerate(children)],
    }


def _sort_keys(value: Any, path: str, room: int) -> Any:
    if room <= 0:
        raise InvalidValue(path, "must not be nested deeper than the limit, or contain a cycle")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise InvalidValue(path, "keys must be text")
        return {key: _sort_keys(value[key], f"{path}.{key:.80}", room - 1) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sort_keys(one, f"{path}[{i}]", room - 1) for i, one in enumerate(value)]
    return value


class _Shapes:
    """A cache of short byte strings, equal for values with equal canonical texts.

    Encodes each object and list only once.
    """

    def __init__(self) -> None:
        self._seen: dict[int, bytes] = {}

    def of(self, value: Any) -> bytes:
        if not isinstance(value, dict | list):
            return codec.encode_sound(value)
        found = self._seen.get(id(value))
        if found is None:
            found = self._seen[id(value)] = hashlib.sha256(codec.encode_sound(value)).digest()
        return found


def _changes(before: Any, after: Any, path: Path, node: str | None, shapes: _Shapes) -> Iterator[Op]:
    if shapes.of(before) == shapes.of(after):
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.get("kind") == after.get("kind"):
        here = _identity(after) or node
        for key in sorted(before.keys() | after.keys()):
            if key not in after:
                yield _op("remove", [*path, key], here)
            elif key not in before:
                yield _op("set", [*path, key], here, after[key])
            else:
                yield from _changes(before[key], after[key], [*path, key], here, shapes)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_changes(before, after, path, node, shapes)
    else:
        yield _op("set", path, _identity(after) or node, after)


def _list_changes(before: list[Any], after: list[Any], path: Path, node: str | None, shapes: _Shapes) -> Iterator[Op]:
    """Yield the operations that turn one list into another, from left to right."""
    at = 0
    for removed, inserted, kept in _stretches(before, after, shapes):
        if kept:
            pairs = list(zip(removed, inserted, strict=True))
            for old, new in pairs:
                yield from _changes(before[old], after[new], [*path, at], node, shapes)
                at += 1
            continue
        for old in removed:
            yield _op("remove", [*path, at], _identity(before[old]) or node)
        for new in inserted:
            yield _op("insert", [*path, at], _identity(after[new]) or node, after[new])
            at += 1


def _stretches(
    before: list[Any], after: list[Any], shapes: _Shapes
) -> Iterator[tuple[Sequence[int], Sequence[int], bool]]:
    """Yield slices of both lists: two index ranges, and True if the children of both ranges correspond in pairs."""
    first, ends = _equal_ends(before, after, shapes)
    last_before, last_after = len(before) - ends, len(after) - ends
    yield range(first), range(first), True
    olds, news = _identities(before), _identities(after)
    place = {name: j for j, name in enumerate(news) if name is not None}
    matched = [(i, place[name]) for i, name in enumerate(olds[first:last_before], first) if name in place]
    i, j = first, first
    for old, new in [*_in_order(matched), (last_before, last_after)]:
        gone, come = range(i, old), range(j, new)
        anonymous = all(olds[k] is None for k in gone) and all(news[k] is None for k in come)
        yield gone, come, anonymous and len(gone) == len(come)
        if old < last_before:
            yield range(old, old + 1), range(new, new + 1), True
        i, j = old + 1, new + 1
    yield range(last_before, len(before)), range(last_after, len(after)), True


def _equal_ends(before: list[Any], after: list[Any], shapes: _Shapes) -> tuple[int, int]:
    """Return how many children are equal at the start of both lists, and how many of the rest at the end."""
    least = min(len(before), len(after))
    first = 0
    while first < least and shapes.of(before[first]) == shapes.of(after[first]):
        first += 1
    ends = 0
    while ends < least - first and shapes.of(before[-1 - ends]) == shapes.of(after[-1 - ends]):
        ends += 1
    return first, ends


def _in_order(matched: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of index pairs in which both indexes ascend."""
    tails: list[int] = []
    ends: list[int] = []
    back: list[int | None] = []
    for k, (_, new) in enumerate(matched):
        at = bisect_left(tails, new)
        back.append(ends[at - 1] if at else None)
        if at == len(tails):
            tails.append(new)
            ends.append(k)
        else:
            tails[at], ends[at] = new, k
    found = []
    k_or_none = ends[-1] if ends else None
    while k_or_none is not None:
        found.append(matched[k_or_none])
        k_or_none = back[k_or_none]
    return found[::-1]


def _identities(children: Sequence[Any]) -> list[str | None]:
    """Return the id of each child. None for a child without an id, or with an id that a sibling has too."""
    found = [_identity(child) for child in children]
    counted = Counter(found)
    return [name if counted[name] == 1 else None for name in found]


def _identity(value: Any) -> str | None:
    """Return the id of an element: its prop ``id`` if that is a non-empty text, else None."""
    if not isinstance(value, dict) or value.get("kind") != "element" or not isinstance(value.get("props"), dict):
        return None
    found = value["props"].get("id")
    return found if isinstance(found, str) and found else None


def _op(op: str, path: Path, node: str | None, *value: Any) -> Op:
    made: Op = {"op": op, "path": path}
    if value:
        made["value"] = value[0]
    if node is not None:
        made["nodeId"] = node
    return made


def _check_op(op: Any) -> Op:
    if not isinstance(op, dict) or op.get("op") not in ("set", "insert", "remove"):
        raise _bad("has an unknown op")
    wanted = {"op", "path"} | (set() if op["op"] == "remove" else {"value"})
    if set(op) - {"nodeId"} != wanted:
        raise _bad("has an op with unknown or missing keys")
    if not isinstance(op["path"], list) or not all(type(step) in (str, int) for step in op["path"]):
        raise _bad("has a path that is not a path")
    return op


def _apply(root: dict[str, Any], op: Op) -> None:
    _check_op(op)
    path = ["tree", *op["path"]]
    if len(path) == 1 and op["op"] != "set":
        raise _bad("removes or inserts the root")
    container: Any = root
    for step in path[:-1]:
        container = _step(container, step)
    _change(container, path[-1], op)


def _step(container: Any, step: Any) -> Any:
    if isinstance(container, dict) and step in container:
        return container[step]
    if isinstance(container, list) and isinstance(step, int) and 0 <= step < len(container):
        return container[step]
    raise _bad("has a path to nowhere")


def _change(container: Any, last: Any, op: Op) -> None:
    value = codec.decode(codec.encode_sound(op.get("value")))
    if op["op"] == "insert":
        if not isinstance(container, list) or not isinstance(last, int) or not 0 <= last <= len(container):
            raise _bad("inserts where nothing can be")
        container.insert(last, value)
    elif op["op"] == "remove":
        _step(container, last)
        del container[last]
    elif isinstance(container, dict) and isinstance(last, str):
        container[last] = value
    else:
        _step(container, last)
        container[last] = value


def _bad(problem: str) -> InvalidValue:
    return InvalidValue("delta", problem)
