"""Type checks of calls: an argument of the wrong type raises `InvalidValue`, in every method of every repository.

Repositories check only what type annotations cannot express. A caller may still pass None, a dict for an argument
group, or a number for a list. Python then raises somewhere in the middle of the method. In that case the arguments are
compared with the method's annotations, and the error names the first argument that does not fit. If all arguments fit,
the original exception is raised. A call that succeeds costs only one extra frame.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lastlight_state import metrics
from lastlight_state.errors import InvalidValue

F = TypeVar("F", bound=Callable[..., Any])

#: The exceptions that Python raises when a value has another type than the code expects.
_UNFIT = (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, RecursionError, ArithmeticError)
_MOST_DEPTH = 20
#: Floats hold every integer below this limit exactly, but not every integer above it.
_FLOAT_BITS = 1_023


def guard_arguments(method: F) -> F:
    """Wrap a method so that an argument of the wrong type raises `InvalidValue` if the method fails."""

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        try:
            if metrics.observer is not None:
                return metrics.observer(method, given, named)
            return method(*given, **named)
        except _UNFIT as error:
            _refuse_unfit(method, given, named, error)
            raise

    return typing.cast(F, call)


def check_arguments(method: F) -> F:
    """Wrap a method so that its arguments are checked before it begins.

    For rarely called methods that rely on the types of their arguments.
    """

    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        _refuse_unfit(method, given, named, None)
        return method(*given, **named)

    return typing.cast(F, call)


def _refuse_unfit(
    method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], error: BaseException | None
) -> None:
    """Raise `InvalidValue` for the first argument whose value does not fit its annotation."""
    try:
        bound = inspect.signature(method).bind(*given, **named).arguments
    except TypeError:  # no such argument: the caller's mistake, raised as in any function
        return
    hints = _hints(method)
    for name, value in bound.items():
        if name in hints:
            problem = _problem(name, value, hints[name], 0)
            if problem is not None:
                raise InvalidValue(*problem) from error


def _problem(where: str, value: Any, hint: Any, depth: int) -> tuple[str, str] | None:
    """Return the place in a value that does not fit its annotation, and the reason. Return None if all of it fits."""
    origin, inner = get_origin(hint), get_args(hint)
    if depth > _MOST_DEPTH or hint is Any:
        return None
    if origin in (Union, types.UnionType):
        problems = [_problem(where, value, one, depth + 1) for one in inner]
        return None if None in problems else _of_union(where, value, inner, problems)
    if origin is Literal:
        known = any(type(value) is type(one) for one in inner)  # the method itself checks that the word is known
        return None if known else _type_problem(where, "a known word", value)
    kind = origin if origin is not None else hint
    if kind is None:
        kind = type(None)
    if not isinstance(kind, type):  # a type variable, or a name that stands for another type
        return None
    if not _is_one(value, kind):
        return _type_problem(where, _name(hint), value)
    return _inside(where, value, inner, depth)


def _inside(where: str, value: Any, inner: tuple[Any, ...], depth: int) -> tuple[str, str] | None:
    """Return the first problem found inside a value: in its elements, entries or fields."""
    parts: list[tuple[str, Any, Any]] = []
    if is_dataclass(value) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        hints = _hints(type(value))
        names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
        parts = [(f"{where}.{name}", getattr(value, name), hints.get(name, Any)) for name in names]
    elif isinstance(value, Mapping) and len(inner) == 2:
        parts = [(f"{where} (a key)", key, inner[0]) for key in value]
        parts += [(f"{where}.{key!s:.80}", part, inner[1]) for key, part in value.items() if isinstance(key, str)]
    elif isinstance(value, str | bytes) and inner:  # not a list of texts: name its first element
        parts = [(f"{where}[0]", value[0], inner[0])] if value else []
    elif isinstance(value, Collection) and inner:
        kinds = inner if Ellipsis not in inner and len(inner) == len(value) else None
        parts = [(f"{where}[{i}]", part, kinds[i] if kinds else inner[0]) for i, part in enumerate(value)]
    found = (_problem(name, part, hint, depth + 1) for name, part, hint in parts)
    return next((problem for problem in found if problem is not None), None)


def _of_union(where: str, value: Any, inner: tuple[Any, ...], problems: list[Any]) -> tuple[str, str]:
    """Return the problem of a value that fits no member of a union: the deepest problem, or else all members' names."""
    deeper = [problem for problem in problems if problem is not None and problem[0] != where]
    if deeper:
        return typing.cast("tuple[str, str]", deeper[0])
    return _type_problem(where, " or ".join(dict.fromkeys(map(_name, inner))), value)


def _is_one(value: Any, kind: type) -> bool:
    if isinstance(value, bool) and kind in (int, float):
        return False
    return isinstance(value, kind) or (kind is float and isinstance(value, int) and value.bit_length() < _FLOAT_BITS)


def _type_problem(where: str, words: str, value: Any) -> tuple[str, str]:
    return where, f"expected {words}, got {type(value).__name__}"


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "a known word"
    kind = get_origin(hint) or hint
    return _WORDS.get(kind) or str(getattr(kind, "__name__", kind))


def _hints(thing: Any) -> dict[str, Any]:
    """Return the annotations of a function's arguments, or of a class; empty if one of them cannot be resolved."""
    try:
        if not inspect.isfunction(thing):
            return get_type_hints(thing)
        written = {name: hint for name, hint in thing.__annotations__.items() if name != "return"}
        return get_type_hints(types.SimpleNamespace(__annotations__=written), inspect.unwrap(thing).__globals__)
    except (NameError, TypeError, AttributeError):
        return {}
