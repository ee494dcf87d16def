"""The library's JSON codec: what may be stored as JSON, its text, its canonical form and its digest.

Both databases must return equal values. So a value that one of them would change or refuse is refused here, before
either gets it, with its path in the error: NaN and infinities, NUL characters, lone surrogates, keys that are not text,
integers beyond 64 bits, cycles, and Python types that JSON does not have.

Lines of log files (`dump_line`, `load_line`) refuse as little as possible: they record what has already happened.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set as AbstractSet
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, TypeAlias
from uuid import UUID

import orjson

from lastlight_state import exact_json
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.exact_json import GREATEST, SMALLEST, by_value, dumped_with_long_integers

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

decode, decode_jsonb = exact_json.decode, exact_json.decode_jsonb
may_hold_long_integers = exact_json.may_hold_long_integers
MAX_DEPTH = 32
#: From this float on, Postgres returns a whole float as an integer of its shortest digits, which is another number.
_ROUNDED = 2.0**53
_PLAIN = frozenset({str, bool, type(None)})
_OF_NUMBERS = ({int}, {float})
_TEXT = frozenset({str})
#: The escape of a NUL character in JSON text, unless a backslash precedes it.
_NUL = b"\\u0000"
#: Searched first, because a single byte is found seven times as fast as a text of several characters.
_BACKSLASH = ord("\\")


def encode(where: str, value: Any, *, max_bytes: int, max_depth: int = MAX_DEPTH, hint: str | None = None) -> str:
    """Return ``value`` as compact JSON text, with keys in the given order and tuples as arrays.

    Raises `InvalidValue` with the path of a part that cannot be stored, `PayloadTooLarge` beyond ``max_bytes`` (UTF-8).
    """
    try:
        data = orjson.dumps(value) if _is_sound(value, max_depth) else None
    except TypeError:  # a lone surrogate
        data = None
    if data is None or (_BACKSLASH in data and _NUL in data):  # either raises, or replaces what may be replaced
        data = encode_bytes(where, value, max_depth=max_depth)
    if len(data) > max_bytes:
        raise PayloadTooLarge(where, limit=max_bytes, actual=len(data), hint=hint)
    return data.decode()


def encode_bytes(where: str, value: Any, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Return ``value`` as compact JSON bytes, with the checks of `encode` but no size limit."""
    if not _is_sound(value, max_depth):
        _raise_for(where, value, max_depth, only_if_found=True)
        value = by_value(value, least=_ROUNDED)
    try:
        data = orjson.dumps(value)
    except TypeError:  # a lone surrogate: the checks above do not look into texts
        _raise_for(where, value, max_depth)
        raise
    if _BACKSLASH in data and _NUL in data:
        _raise_for(where, value, max_depth, only_if_found=True)
    return data


def encode_sound(value: Any, *, indented: bool = False) -> bytes:
    """Return the JSON bytes of a value. Its parts must have been checked, or come from the database.

    A value from the database may contain integers of any size, which another program stored.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else None)
    except TypeError as refusal:
        return dumped_with_long_integers(value, refusal, indent=2 if indented else None)


def encode_merged(where: str, value: Any, *, max_bytes: int) -> str:
    """Return the JSON text of a stored value after a checked value was merged into it. Raises `PayloadTooLarge`.

    Parts that another program stored stay unchanged, even integers beyond 64 bits.
    """
    data = encode_sound(value)
    if len(data) > max_bytes:
        raise PayloadTooLarge(where, limit=max_bytes, actual=len(data))
    return data.decode()


def canonical(value: Any) -> bytes:
    """Return the canonical JSON in UTF-8: keys sorted, no blanks, and equal numbers written in the same way.

    ``1.0`` is written ``1``, and ``-0.0`` is written ``0``.
    """
    plain = by_value(value)
    try:
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except TypeError as refusal:
        return dumped_with_long_integers(plain, refusal, sort_keys=True)


def digest(value: Any) -> str:
    """Return the SHA-256 checksum of the canonical form, 64 lower-case hex digits. Equal values have equal digests."""
    return hashlib.sha256(canonical(value)).hexdigest()


def in_one_order(value: Any, written: Any) -> Any:
    """Return ``written``, the JSON of ``value``, but with the members of each set in a fixed order."""
    if isinstance(value, AbstractSet) and isinstance(written, list):
        return sorted(written, key=canonical)
    if isinstance(value, Mapping) and isinstance(written, dict) and len(value) == len(written):
        inner = zip(value.values(), written.items(), strict=True)
        return {key: in_one_order(own, found) for own, (key, found) in inner}
    if isinstance(value, list | tuple | deque) and isinstance(written, list) and len(value) == len(written):
        return [in_one_order(own, found) for own, found in zip(value, written, strict=True)]
    return written


def exact_text(amount: Decimal) -> str:
    """Return an amount with all its digits, in any decimal context, without exponent or trailing zeros: ``0.1``."""
    text = format(amount, "f") if amount else "0"
    return text.rstrip("0").removesuffix(".") if "." in text else text


def is_deeper(value: Any, levels: int) -> bool:
    """True if objects and arrays are nested more than ``levels`` deep."""
    found = [value]
    for _ in range(levels + 1):
        found = [one for one in found if isinstance(one, dict | list | tuple)]
        if not found:
            return False
        found = [child for one in found for child in (one.values() if isinstance(one, dict) else one)]
    return True


def check_text(where: str, text: str) -> None:
    """Raise an error for a text that one of the databases cannot store: with NUL characters or lone surrogates."""
    problem = _text_problem(text)
    if problem:
        raise InvalidValue(where, problem)


def _is_sound(root: Any, max_depth: int) -> bool:
    """True if all values, keys and nesting levels can be stored unchanged. Texts are checked once encoded."""
    stack: list[tuple[Any, int]] = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        kind = type(value)
        if kind is dict:
            if depth >= max_depth:
                return False
            if not _TEXT.issuperset(map(type, value)):
                return False
            children = value.values()
        elif kind is list or kind is tuple:
            if depth >= max_depth:
                return False
            children = value
        elif _is_sound_scalar(value, kind):
            continue
        else:
            return False
        kinds = {*map(type, children)}
        if kinds <= _PLAIN or (kinds in _OF_NUMBERS and _are_sound_numbers(children, *kinds)):
            continue
        for child in children:
            kind = type(child)
            if kind in _PLAIN:
                continue
            if kind is dict or kind is list or kind is tuple:
                stack.append((child, depth + 1))
            elif not _is_sound_scalar(child, kind):
                return False
    return True


def _are_sound_numbers(numbers: Collection[Any], kind: type) -> bool:
    """True if all of these integers (or all of these floats) can be stored."""
    is_finite = kind is int or all(map(isfinite, numbers))
    return is_finite and all(_is_sound_scalar(number, kind) for number in (min(numbers), max(numbers)))


def _is_sound_scalar(value: Any, kind: type) -> bool:
    if kind is int:
        return bool(SMALLEST <= value <= GREATEST)
    if kind is float:
        return bool(-_ROUNDED < value < _ROUNDED)
    return kind in _PLAIN


def _raise_for(where: str, value: Any, max_depth: int, *, only_if_found: bool = False) -> None:
    for path, problem in _problems(value, where, max_depth):
        raise InvalidValue(path, problem)
    if not only_if_found:
        raise InvalidValue(where, "cannot be written as JSON")


def _problems(value: Any, path: str, room: int) -> Iterator[tuple[str, str]]:
    """Yield, in document order, the path of each value that cannot be stored, and the reason."""
    kind = type(value)
    if kind is str:
        problem = _text_problem(value)
        if problem:
            yield path, problem
    elif kind is dict or kind is list or kind is tuple:
        if room <= 0:
            yield path, "must not be nested deeper than the limit, or contain a cycle"
            return
        for key, child in value.items() if kind is dict else enumerate(value):
            if kind is dict:
                if type(key) is not str:
                    yield path, f"key of type {type(key).__name__}: keys are text"
                    continue
                problem = _text_problem(key)
                if problem:
                    yield f"{path} (a key)", problem
                    continue
            yield from _problems(child, _step(path, key), room - 1)
    elif kind is int:
        if not SMALLEST <= value <= GREATEST:
            yield path, "expected an integer of at most 64 bits, got an integer beyond 64 bits"
    elif kind is float:
        if not isfinite(value):
            yield path, "expected a finite number, got NaN or infinity"
    elif kind not in _PLAIN:
        yield path, f"{kind.__name__} is not a JSON type"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "must not contain a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must not contain a lone surrogate, or bytes that are not UTF-8"
    return None


def _step(path: str, key: object) -> str:
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{str(key)[:80]}"


# ---- Lines of log files ----------------------------------------------------------------------------------------------

LINE_DEPTH = 500
_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_INTEGER_BITS = 14_280  # 4,300 digits
_LEAST_EXPONENT = 1e21  # from this float on, the files' first writers wrote whole numbers with an exponent
_HALF_OF_PAIR = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def dump_line(value: Any, *, where: str = "line") -> bytes:
    """Return ``value`` as one line of a log file: compact UTF-8 JSON, keys in the given order, ``\\n`` at the end.

    Whole floats below 1e21 are written as integers, NaN and infinities as ``null``, lone surrogates and NUL as escapes,
    keys that are not text as their JSON text, integers of any size as digits. Raises `InvalidValue` with the path for
    cycles, more than 500 levels, two keys with the same text, and Python types that JSON does not have.
    """
    try:
        line = orjson.dumps(value, option=_LINE)
    except TypeError:
        return _dump_with_care(where, value)
    return _dump_with_care(where, value) if _has_whole_float(value) else line


def load_line(raw: bytes, *, keep_halves: bool = False) -> Any:
    """Parse one line, with or without its newline. Raises ValueError if it is not JSON.

    Integers of any size are exact. If a writer cut a text inside an emoji, half of a surrogate pair remains. It is read
    as U+FFFD, or unchanged with ``keep_halves``.
    """
    try:
        return decode(raw)
    except ValueError:
        if b"\\ud" not in raw and b"\\uD" not in raw:
            raise
        mended = _HALF_OF_PAIR.sub(lambda match: match[1] or rb"\ufffd", raw)
        found = decode(mended)
        return json.loads(raw.decode()) if keep_halves else found


def _has_whole_float(root: Any) -> bool:
    """True if the value, which must have no cycles, contains a float that must be written as an integer."""
    if type(root) is not dict:
        return True
    containers: list[Any] = [root]
    for container in containers:
        for child in container.values() if type(container) is dict else container:
            kind = type(child)
            if kind is str:
                continue
            if kind is dict or kind is list or kind is tuple:
                containers.append(child)
            elif kind is float and child.is_integer():
                return True
    return False


def _dump_with_care(where: str, value: Any) -> bytes:
    try:
        plain = _line_value(value, where, LINE_DEPTH)
        try:
            return orjson.dumps(plain, option=_LINE)
        except TypeError:  # integers beyond 64 bits, lone surrogates, or too many levels
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise InvalidValue(where, "must not be nested deeper than the limit, or contain a cycle") from None
    return text.encode("utf-8", "backslashreplace") + b"\n"  # UTF-8 lacks only surrogates


def _line_value(value: Any, path: str, room: int) -> Any:
    """Return ``value`` with those parts replaced that a line writes differently. Each level is one call deeper."""
    if not isinstance(value, dict | list | tuple):
        return _line_scalar(value, path)
    if room <= 0:
        raise InvalidValue(path, "must not be nested deeper than the limit, or contain a cycle")
    if isinstance(value, dict):
        named: dict[str, Any] = {}
        for key, child in value.items():
            name = key if isinstance(key, str) else _line_key(key, path)
            if name in named:
                raise InvalidValue(path, f"two keys are written as {name[:80]!r}")
            named[name] = _line_value(child, _step(path, name), room - 1)
        return named
    listed: list[Any] = []
    for index, child in enumerate(value):
        listed.append(_line_value(child, _step(path, index), room - 1))  # a comprehension would add a second frame
    return listed


def _line_scalar(value: Any, path: str) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < _LEAST_EXPONENT else value
    if isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise InvalidValue(path, "integer of more digits than Python writes")
        return value
    if isinstance(value, Enum):
        return _line_scalar(value.value, path)
    if isinstance(value, UUID):
        return str(value)
    raise InvalidValue(path, f"{type(value).__name__} is not a JSON type")


def _line_key(key: Any, path: str) -> str:
    return plain if isinstance(plain := _line_scalar(key, f"{path} (a key)"), str) else json.dumps(plain)
