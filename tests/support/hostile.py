"""Hostile calls: every public method of every repository, with one argument at a time that nobody would expect.

Methods are found by walking the faces of a store, so that a domain added later is attacked from its first day. The
other arguments are plausible: ids of rows that are there, words of the vocabulary, groups made of plausible parts.
"""

from __future__ import annotations

import inspect
import random
import re
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lastlight_state.db.repository import Repository
from lastlight_state.errors import StateError
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


class Word(Enum):
    """A word that is no text."""

    RUNNING = "running"


HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**5_000, 1.5, -0.0, 1e308,
    float("nan"), float("inf"), Decimal("NaN"), Decimal("1e400"), 1j, "", " ", "x", "a\0b", "\0", "\ud800", "a\nb",
    "\x1b[31m", "é" * 200, "x" * 300, "x" * 5_000, "x" * 2_000_000, "9" * 5_000, "running", b"", b"x\xff", [], [None],
    ["x"], ["x"] * 600, [1], ["a\0b"], ("x",), (), {}, {"x": 1}, {1: 2}, {None: None}, {"a\0b": "\0"}, {"x": 10**5_000},
    {"x": float("nan")}, {"x": CYCLE}, CYCLE, set(), {"x"}, frozenset({1}), range(3), iter(()), object, Odd(), len,
    Word.RUNNING, date(2026, 1, 1), NAIVE, datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC), timedelta(0), timedelta(-1), timedelta.max, timedelta.min, "2026-01-01",
    {"type": "string", "pattern": "(a{65535}){65535}"}, {"type": "object", "properties": 5}, {"$ref": "#"},
    {"type": "string", "pattern": "x{99999999999999999999}"},
)  # fmt: skip


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
            made = owner(**{**_ending(owner), **self.arguments})
            if inspect.isgenerator(made):
                made = [*made]
            if hasattr(made, "__enter__"):
                made = "a block"
        except StateError as error:
            return type(error).__name__, _common(str(error))
        except Exception as error:  # noqa: BLE001 - what the test is for
            return f"!{type(error).__name__}", _common(str(error))
        return "made", type(made).__name__


def _ending(method: Callable[..., Any]) -> dict[str, Any]:
    """The arguments by which a call that follows something ends at once, whichever of them is replaced."""
    over = threading.Event()
    over.set()
    known = {"idle_timeout": 0, "stop": over}
    return {name: known[name] for name in known.keys() & inspect.signature(method).parameters.keys()}


def methods(store: StateStore) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of all repositories, by their path."""
    for face_name in sorted(set(dir(type(store))) - {"open"}):
        face = None if face_name.startswith("_") else getattr(store, face_name)
        for inner in dir(type(face)):
            repository = None if inner.startswith("_") else getattr(face, inner, None)
            if isinstance(repository, Repository):
                for name, method in inspect.getmembers(type(repository), inspect.isfunction):
                    if not name.startswith("_"):
                        yield f"{face_name}.{inner}.{name}", method


def calls(store: StateStore, known: Mapping[str, Any], *, share: float, seed: int) -> Iterator[Call]:
    """Calls of every method with one hostile argument each; of all these a random share, always some of each method."""
    chance = random.Random(seed)
    for path, method in methods(store):
        hints, plain = taken(method, known)
        yield Call(path, plain, "", seed)
        for name, hint in hints.items():
            for value in [*HOSTILE, *_broken_groups(name, hint, known)]:
                if chance.random() < share:
                    yield Call(path, {**plain, name: value}, name, seed)


def taken(method: Callable[..., Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a method's arguments by their names, and plausible values of those that must be given."""
    hints = _hints(method)
    parameters = [p for p in list(inspect.signature(method).parameters.values())[1:] if p.kind is not p.VAR_KEYWORD]
    kinds = {p.name: hints.get(p.name, Any) for p in parameters}
    return kinds, {p.name: plausible(p.name, kinds[p.name], known) for p in parameters if p.default is p.empty}


def plausible(name: str, hint: Any, known: Mapping[str, Any]) -> Any:
    """A value that the parameter may well have."""
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
    simple = {str: "x", int: 1, float: 1.0, bool: True, datetime: NOW, timedelta: timedelta(minutes=1), bytes: b"x"}
    if kind in simple:
        return simple[kind]
    if kind in (list, tuple, set, frozenset) or getattr(kind, "__name__", "") in ("Sequence", "Collection", "Iterable"):
        return [plausible(name.removesuffix("s"), inner[0], known)] if inner else []
    if kind is dict or getattr(kind, "__name__", "") == "Mapping":
        return {"x": plausible("value", inner[1], known) if inner else 1}
    if is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return _group(kind, known)
    return {"x": 1}


def _group(kind: Any, known: Mapping[str, Any], **given: Any) -> Any:
    hints = _hints(kind)
    needed = (
        [f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
        if is_dataclass(kind)
        else [name for name in kind._fields if name not in kind._field_defaults]
    )
    made = {name: plausible(name, hints.get(name, Any), known) for name in needed} | given
    try:
        return kind(**made)
    except StateError:
        return None


def _broken_groups(name: str, hint: Any, known: Mapping[str, Any]) -> Iterator[Any]:
    """The argument group of a parameter with one hostile part each."""
    for kind in (hint, *get_args(hint)):
        if is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
            names = [f.name for f in fields(kind) if f.init] if is_dataclass(kind) else kind._fields
            for part in names:
                for value in HOSTILE:
                    made = None
                    try:
                        made = _group(kind, known, **{part: value})
                    except (TypeError, ValueError, AttributeError, OverflowError):
                        continue  # an argument group is the caller's own object until it reaches a method
                    if made is not None:
                        yield made


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return get_type_hints(inspect.unwrap(thing) if inspect.isfunction(thing) else thing)
    except (NameError, TypeError):
        return {}


def _common(text: str) -> str:
    seen: dict[str, str] = {}
    text = _UUID.sub(lambda match: seen.setdefault(match[0], f"<id {len(seen)}>"), text)
    text = re.sub(r"'?<id (\d+)>", r"<id \1>", text)
    return re.sub(r"0x[0-9a-f]+", "0x…", text)
