"""Conversion of validated pydantic values to JSON.

Values that pydantic would convert to different values are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set as AbstractSet
from math import isfinite
from typing import Any

from pydantic import TypeAdapter

from lastlight_state import codec
from lastlight_state.errors import InvalidValue

_LISTS = (list, tuple, deque)
_ARRAYS = (list, tuple)
_JSON_SCALARS = (str, int, float, type(None))
_NO_TEXT = (bytes, bytearray, memoryview)


def dump_strictly(where: str, adapter: TypeAdapter[Any], instance: Any, *, has_sets: bool, is_open: bool) -> Any:
    """Return the instance as JSON by field name. If ``has_sets`` is True, sets are written in a fixed order.

    ``is_open`` is True if the instance may hold values that its types do not describe. Raises `InvalidValue` with the
    path of a value that pydantic would write as another value: NaN, an infinity, bytes, or two keys with one text. A
    value that becomes a text or a list in JSON is refused too, if no declared type converts it back: a time, a Decimal,
    a UUID, a set, a deque, an iterator, a key that is not a text, and the like.
    """
    try:
        dumped = adapter.serializer.to_python(instance, mode="json", by_alias=False)
        if not has_sets and not is_open:
            return dumped
        given = adapter.serializer.to_python(instance, by_alias=False, warnings=False)
    except (ValueError, TypeError) as error:  # half of a surrogate pair is a ValueError
        raise InvalidValue(where, f"cannot be written as JSON: {_reason(error)}") from None
    if is_open:
        _refuse_changed(where, given, dumped)
        if _is_odd(given):
            _refuse_texts(where, given, _read_back(adapter, dumped))
    return codec.in_one_order(given, dumped) if has_sets else dumped


def refuse_unordered(where: str, given: Any, adapter: TypeAdapter[Any], instance: Any) -> None:
    """Refuse a set that is passed for a list: pydantic would order its members differently in each process."""
    if _holds_set(given):
        for by_alias in (False, True):
            dumped = adapter.serializer.to_python(instance, by_alias=by_alias, warnings=False)
            _refuse_set_as_list(where, given, dumped)


def _holds_set(given: Any) -> bool:
    kind = type(given)
    if kind is dict:
        return any(map(_holds_set, given.values()))
    if kind is list or kind is tuple:
        return any(map(_holds_set, given))
    return kind is set or kind is frozenset


def _refuse_set_as_list(where: str, given: Any, made: Any) -> None:
    if isinstance(given, dict) and isinstance(made, Mapping):
        for key, value in given.items():
            if key in made:
                _refuse_set_as_list(f"{where}.{str(key)[:80]}", value, made[key])
    elif isinstance(given, _ARRAYS) and isinstance(made, _LISTS):
        for index, (value, child) in enumerate(zip(given, made, strict=False)):
            _refuse_set_as_list(f"{where}[{index}]", value, child)
    elif isinstance(given, AbstractSet) and isinstance(made, _LISTS):
        raise InvalidValue(where, f"expected a list, got a {type(given).__name__}, whose members are in no order")


def _refuse_changed(where: str, given: Any, dumped: Any) -> None:
    """Refuse values that differ from their JSON form. Skips parts that a custom serializer has rearranged."""
    if isinstance(given, Mapping) and isinstance(dumped, dict):
        if len(dumped) < len(given):
            raise InvalidValue(where, "two keys are written as one text")
        for value, (key, child) in zip(given.values(), dumped.items(), strict=False):
            _refuse_changed(f"{where}.{key[:80]}", value, child)
    elif isinstance(given, _LISTS) and isinstance(dumped, list):
        for index, (value, child) in enumerate(zip(given, dumped, strict=False)):
            _refuse_changed(f"{where}[{index}]", value, child)
    elif isinstance(given, AbstractSet):  # its members are written in an order of its own
        for value in given if isinstance(dumped, list) else ():
            _refuse_scalar(where, value)
    elif dumped is None or isinstance(dumped, str):
        _refuse_scalar(where, given)


def _is_odd(given: Any) -> bool:
    """True if a value contains a key or value that JSON can express only as another type, such as a text."""
    if isinstance(given, Mapping):
        return any(not isinstance(key, str) or _is_odd(value) for key, value in given.items())
    if isinstance(given, _ARRAYS):
        return any(map(_is_odd, given))
    return not isinstance(given, _JSON_SCALARS)


def _read_back(adapter: TypeAdapter[Any], dumped: Any) -> Any:
    """Return the value that the declared types parse from the JSON. None if they cannot parse it."""
    try:
        found = adapter.validator.validate_json(codec.encode_sound(dumped), by_alias=False, by_name=True)
        return adapter.serializer.to_python(found, by_alias=False, warnings=False)
    except (ValueError, TypeError):
        return None


def _refuse_texts(where: str, given: Any, back: Any) -> None:
    """Refuse a value that JSON turns into a text or a list, although the value is neither.

    Parts that have a different structure after parsing are not compared.
    """
    if isinstance(given, Mapping) and isinstance(back, Mapping):
        for (key, value), (name, child) in zip(given.items(), back.items(), strict=False):
            if not isinstance(key, str) and type(name) is str:
                raise InvalidValue(where, f"a key of type {type(key).__name__} would come back as text")
            _refuse_texts(f"{where}.{str(name)[:80]}", value, child)
    elif isinstance(back, deque if isinstance(given, deque) else _LISTS) and isinstance(given, _LISTS):
        for index, (value, child) in enumerate(zip(given, back, strict=False)):
            _refuse_texts(f"{where}[{index}]", value, child)
    elif isinstance(back, list) and not isinstance(given, Mapping):
        raise InvalidValue(where, f"{type(given).__name__} is not a JSON type, and would come back as a list")
    elif type(back) is str and not isinstance(given, str):
        raise InvalidValue(where, f"{type(given).__name__} is not a JSON type, and would come back as text")


def _refuse_scalar(where: str, given: Any) -> None:
    if isinstance(given, float) and not isfinite(given):
        raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    if isinstance(given, _NO_TEXT):
        raise InvalidValue(where, f"{type(given).__name__} is not a JSON type")


def _reason(error: Exception) -> str:
    """Return the error's text.

    Omit the text of a `UnicodeError`, which would contain the characters that cannot be encoded.
    """
    return (
        "must not contain a lone surrogate, or bytes that are not UTF-8"
        if isinstance(error, UnicodeError)
        else str(error)
    )
