"""Hostile calls: every public method of every repository, with one argument at a time that nobody would expect.

Methods are found by walking the faces of a store, so that a domain added later is attacked from its first day. The
other arguments are plausible: ids of rows that are there, words of the vocabulary, groups made of plausible parts.
"""

from __future__ import annotations

import collections.abc
import inspect
import random
import re
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from lastlight_state.db.repository import Repository
from lastlight_state.errors import StateError
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.outputs.table import OutputTable
from lastlight_state.store import StateStore

NOW = datetime(2026, 2, 3, 12, 34, 56, tzinfo=UTC)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - which is what is refused
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Odd:
    """An object of no type that anybody expects."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Shape(BaseModel):
    """What a type argument may be."""

    x: int = 1


class Word(Enum):
    """A word that is no text."""

    RUNNING = "running"


HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 2**70, -(2**70), 10**5_000, 1.5, -0.0,
    1e308, float("nan"), float("inf"), Decimal("NaN"), Decimal("1e400"), 1j, "", " ", "x", "a\0b", "\0", "\ud800",
    "a\nb", "\x1b[31m", "é" * 200, "x" * 300, "x" * 5_000, "x" * 2_000_000, "9" * 5_000, "running", b"", b"x\xff", [],
    [None], ["x"], ["x"] * 600, [1], ["a\0b"], ("x",), (), {}, {"x": 1}, {1: 2}, {None: None}, {"a\0b": "\0"},
    {"x": 10**5_000}, {"x": float("nan")}, {"x": CYCLE}, CYCLE, set(), {"x"}, frozenset({1}), range(3), iter(()),
    object, Odd(), len, Word.RUNNING, date(2026, 1, 1), NAIVE, datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC), timedelta(0), timedelta(-1), timedelta.max, timedelta.min, "2026-01-01",
    {"type": "string", "pattern": "(a{65535}){65535}"}, {"type": "object", "properties": 5}, {"$ref": "#"},
    {"type": "string", "pattern": "x{99999999999999999999}"},
)  # fmt: skip


def _called(*_: object) -> None:
    """A callback that does nothing."""


#: A plausible value of each type whose values have no parts.
PLAIN: dict[Any, Any] = {
    str: "x", int: 1, float: 1.0, bool: True, bytes: b"x", datetime: NOW, timedelta: timedelta(minutes=1),
    Decimal: Decimal("1.5"), Any: {"x": 1}, object: {"x": 1}, Path: Path("/nowhere/there"), type(None): None,
    threading.Event: threading.Event(), OutputTable: "analysis",
    type: Shape, collections.abc.Callable: _called,
}  # fmt: skip
_SEQUENCES = (
    list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable,
    collections.abc.Set,
)  # fmt: skip
_MAPPINGS = (dict, collections.abc.Mapping)


@dataclass(frozen=True)
class Call:
    """A method by its path below the store, and its arguments."""

    path: str
    arguments: Mapping[str, Any]
    attacked: str
    seed: int

    def on(self, store: Any) -> tuple[str, str]:
        """What came of it on a store or in a transaction, in words that two databases have in common.

        An error that is not the library's own begins with ``!``.
        """
        owner = store
        for name in self.path.split("."):
            owner = getattr(owner, name)
        try:
            listed, named = _spread(owner, {**_ending(owner), **self.arguments})
            made = owner(*listed, **named)
            if inspect.isgenerator(made):
                made = [*made]
            if hasattr(made, "__enter__"):
                made = "a block"
        except StateError as error:
            return type(error).__name__, _common(str(error))
        except Exception as error:  # noqa: BLE001 - what the test is for
            return f"!{type(error).__name__}", _common(str(error))
        return "made", type(made).__name__


def _spread(method: Callable[..., Any], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments without a name of their own, and the others."""
    parameters = inspect.signature(method).parameters.values()
    many = [given.pop(p.name, ()) for p in parameters if p.kind is p.VAR_POSITIONAL]
    return [one for values in many for one in (values if isinstance(values, list) else [values])], given


def _ending(method: Callable[..., Any]) -> dict[str, Any]:
    """The arguments by which a call that follows something ends at once, whichever of them is replaced."""
    over = threading.Event()
    over.set()
    known = {"idle_timeout": 0, "stop": over}
    return {name: known[name] for name in known.keys() & inspect.signature(method).parameters.keys()}


def methods(store: StateStore) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of all repositories, by their path."""
    for face_name in sorted(set(dir(type(store))) - {"open", "replica"}):
        face = None if face_name.startswith("_") else getattr(store, face_name)
        if isinstance(face, Repository):
            yield from _verbs(face_name, face)
        for inner in dir(type(face)):
            repository = None if inner.startswith("_") else getattr(face, inner, None)
            if isinstance(repository, Repository):
                yield from _verbs(f"{face_name}.{inner}", repository)


def mailbox_methods(face: Mailboxes, group: str, session: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of the face of mailboxes, and of both sides of one; ``host`` and ``agent`` are calls."""
    yield from _verbs("", face)
    for side, opened in (("host", face.host(group, session)), ("agent", face.agent(group, session))):
        yield from _verbs(side, opened)
        for room in dir(type(opened)):
            repository = None if room.startswith("_") else getattr(opened, room, None)
            if isinstance(repository, Repository):
                yield from _verbs(f"{side}.{room}", repository)


def _verbs(path: str, owner: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(type(owner), inspect.isfunction):
        if not name.startswith("_"):
            yield f"{path}.{name}".removeprefix("."), method


def calls(
    verbs: Iterable[tuple[str, Callable[..., Any]]], known: Mapping[str, Any], *, share: float, seed: int
) -> Iterator[Call]:
    """Calls of every method with one hostile argument each; of all these a random share, always some of each method."""
    chance = random.Random(seed)
    for path, method in verbs:
        hints, plain = taken(method, known)
        yield Call(path, plain, "", seed)
        for name, hint in hints.items():
            takes_calls = get_origin(hint) is collections.abc.Callable
            for value in HOSTILE:
                if chance.random() < share and not (takes_calls and callable(value)):  # whose errors are the caller's
                    yield Call(path, {**plain, name: value}, name, seed)
            for broken in broken_groups(hint, known):
                if chance.random() < share:
                    made = broken()
                    if made is not None:
                        yield Call(path, {**plain, name: made}, name, seed)


def taken(method: Callable[..., Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a method's arguments by their names, and plausible values of those that must be given."""
    kinds = _kinds(method)
    parameters = inspect.signature(method).parameters
    needed = (name for name in kinds if parameters[name].default is inspect.Parameter.empty)
    return kinds, {name: plausible(name, kinds[name], known) for name in needed}


def unknown(method: Callable[..., Any], known: Mapping[str, Any]) -> Iterator[str]:
    """The parameters for which no value can be made that is right, and the parts of their argument groups."""
    for name, hint in _kinds(method).items():
        yield from _unknown(name, hint, known, ())


def _unknown(name: str, hint: Any, known: Mapping[str, Any], above: tuple[Any, ...]) -> Iterator[str]:
    try:
        plausible(name, hint, known)
    except Unknown as error:
        yield str(error)
        return
    for kind, _ in groups(hint):
        if kind not in above:
            hints = _hints(kind)
            for part in _parts(kind):
                yield from _unknown(f"{name}.{part}", hints.get(part, Unknown), known, (*above, kind))


class Unknown(Exception):
    """There is no plausible value for a parameter of this type: add one to `plausible` or to ``KNOWN``."""


def _kinds(method: Callable[..., Any]) -> dict[str, Any]:
    hints = _hints(method)
    parameters = [p for p in list(inspect.signature(method).parameters.values())[1:] if p.kind is not p.VAR_KEYWORD]
    return {p.name: hints.get(p.name, Unknown) for p in parameters}


def plausible(name: str, hint: Any, known: Mapping[str, Any]) -> Any:
    """A value that the parameter may well have. Raises `Unknown`."""
    if name in known:
        return known[name]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return plausible(name, inner[0], known)
    if origin in (Union, types.UnionType):
        return plausible(name, next((one for one in inner if one is not type(None)), Any), known)
    if origin is Literal:
        return inner[0]
    kind = origin or hint
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in _SEQUENCES:
        return [plausible(name.removesuffix("s"), inner[0], known)] if inner else []
    if kind in _MAPPINGS:
        return {"x": plausible("value", inner[1], known) if inner else 1}
    if is_group(kind):
        return _group(kind, known)
    raise Unknown(f"{name}: {hint}")


def is_group(kind: Any) -> bool:
    """Whether a type is an argument group: a dataclass, a named tuple or a record. A handle is none of a caller's."""
    return (
        isinstance(kind, type)
        and kind is not OutputTable
        and (
            is_dataclass(kind) or issubclass(kind, BaseModel) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        )
    )


def groups(hint: Any) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """The argument groups that a parameter takes, each with what makes the argument of one of them."""
    origin, inner = get_origin(hint), get_args(hint)
    kind = origin or hint
    if is_group(kind):
        yield kind, lambda one: one
    elif origin in (Union, types.UnionType, typing.Annotated):
        for one in inner:
            yield from groups(one)
    elif kind in _SEQUENCES and inner:
        for found, wrapped in groups(inner[0]):
            yield found, lambda one, wrapped=wrapped: [wrapped(one)]  # type: ignore[misc]
    elif kind in _MAPPINGS and inner:
        for found, wrapped in groups(inner[1]):
            yield found, lambda one, wrapped=wrapped: {"x": wrapped(one)}  # type: ignore[misc]


def broken_groups(hint: Any, known: Mapping[str, Any], above: tuple[Any, ...] = ()) -> Iterator[Callable[[], Any]]:
    """The argument groups of a parameter with one hostile part each, at any depth.

    Each is made when it is called. It is None where the group itself refuses the part.
    """
    for kind, wrapped in groups(hint):
        if kind in above:
            continue
        hints = _hints(kind)
        for part in _parts(kind):
            for value in HOSTILE:
                yield partial(_broken, kind, part, lambda value=value: value, wrapped, known)  # type: ignore[misc]
            for inner in broken_groups(hints.get(part), known, (*above, kind)):
                yield partial(_broken, kind, part, inner, wrapped, known)


def _broken(
    kind: Any, part: str, value: Callable[[], Any], wrapped: Callable[[Any], Any], known: Mapping[str, Any]
) -> Any:
    inner = value()
    try:
        made = _group(kind, known, **{part: inner})
    except (TypeError, ValueError, AttributeError, OverflowError, StateError, RuntimeError):
        return None  # an argument group is the caller's own object until it reaches a method
    return wrapped(made)


def _parts(kind: Any) -> list[str]:
    if is_dataclass(kind):
        return [f.name for f in fields(kind) if f.init]
    return [*(kind.model_fields if issubclass(kind, BaseModel) else kind._fields)]


def _needed(kind: Any) -> list[str]:
    if is_dataclass(kind):
        return [f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if issubclass(kind, BaseModel):
        return [name for name, field in kind.model_fields.items() if field.is_required()]
    return [name for name in kind._fields if name not in kind._field_defaults]


def _group(kind: Any, known: Mapping[str, Any], **given: Any) -> Any:
    hints = _hints(kind)
    return kind(**{name: plausible(name, hints.get(name, Unknown), known) for name in _needed(kind)} | given)


@cache
def _hints(thing: Any) -> dict[str, Any]:
    """The types of parameters or fields. What a method returns may be known to type checkers alone."""
    if isinstance(thing, type):
        return get_type_hints(thing)
    method = inspect.unwrap(thing)
    parameters = {name: hint for name, hint in method.__annotations__.items() if name != "return"}
    return get_type_hints(types.SimpleNamespace(__annotations__=parameters), globalns=method.__globals__)


def _common(text: str) -> str:
    seen: dict[str, str] = {}
    text = _UUID.sub(lambda match: seen.setdefault(match[0], f"<id {len(seen)}>"), text)
    text = re.sub(r"'?<id (\d+)>", r"<id \1>", text)
    return re.sub(r"0x[0-9a-f]+", "0x…", text)
