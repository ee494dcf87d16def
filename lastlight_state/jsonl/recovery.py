"""What can still be read in a line that is not one JSON object. Pure.

Damage has few causes: a writer killed in the middle of a line whose neighbour glued its own line to it, two writers
without locks, a power loss that left a run of NULs. What was whole before is whole now, so it is looked for:

1. runs of NUL at both ends are stripped;
2. a plain concatenation of whole objects is taken apart;
3. else the leftmost place is found from which the *rest of the line* is one object that the reader's domain accepts.

The domain must accept, because a line torn right behind a nested object also ends in something that parses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from lastlight_state.codec import load_line

Reason: TypeAlias = Literal["torn", "bad_json", "bad_utf8", "not_object", "nul_bytes", "glued", "oversize"]
Accepts: TypeAlias = Callable[[dict[str, Any]], bool]

_BLANK = " \t\r"
_NUL_OR_BLANK = "\0 \t\r"
_OBJECT_BEGINS = re.compile(r'\{[ \t\r]*"')
_WHOLE_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_MOST_FAILURES = 1_000  # our own lines have at most 500 open levels where they tear
_decoder = json.JSONDecoder()


class Piece(NamedTuple):
    """A whole object, and where in its line it begins."""

    start: int
    raw: bytes
    value: dict[str, Any]


class Verdict(NamedTuple):
    """The objects of a line, and what is wrong with it: None for a blank line and for a sound one."""

    pieces: tuple[Piece, ...]
    reason: Reason | None


def judge(raw: bytes, accepts: Accepts) -> Verdict:
    """What a line holds, its newline taken off. Never raises."""
    if not raw.strip(_BLANK.encode()):
        return Verdict((), None)
    try:
        value = load_line(raw)
    except ValueError:
        return _recover(raw, accepts)
    return Verdict((Piece(0, raw, value),), None) if isinstance(value, dict) else Verdict((), "not_object")


def _recover(raw: bytes, accepts: Accepts) -> Verdict:
    text = raw.decode("latin-1")  # one character for each byte, and JSON's own characters are where they were
    body = text.strip(_NUL_OR_BLANK)
    if not body:
        return Verdict((), "nul_bytes")
    start = text.index(body[0])
    stop = start + len(body)
    pieces, reached = _leading_objects(raw, text, start, stop)
    if reached == stop:
        return Verdict(tuple(pieces), "glued" if len(pieces) > 1 else "nul_bytes")
    last = _object_at_end(raw, text, reached, stop, accepts)
    kept = [piece for piece in pieces if accepts(piece.value)]
    damaged = text[reached : last.start if last else len(text)]
    return Verdict((*kept, last) if last else tuple(kept), _reason(damaged))


def _leading_objects(raw: bytes, text: str, start: int, stop: int) -> tuple[list[Piece], int]:
    """The whole objects that stand one behind the other from ``start`` on, and where that ends."""
    pieces: list[Piece] = []
    while start < stop:
        piece = _object_at(raw, text, start)
        if piece is None:
            break
        pieces.append(piece)
        start += len(piece.raw)
        while start < stop and text[start] in _NUL_OR_BLANK:
            start += 1
    return pieces, start


def _object_at_end(raw: bytes, text: str, start: int, stop: int, accepts: Accepts) -> Piece | None:
    """The object from the leftmost place that reaches exactly to ``stop``, if the domain accepts it."""
    failures = 0
    begins = _OBJECT_BEGINS.search(text, start)
    while begins is not None and failures < _MOST_FAILURES:
        end = _end_of_object(text, begins.start())
        if end == stop:
            piece = _object_at(raw, text, begins.start())
            return piece if piece is not None and accepts(piece.value) else None
        failures += end is None
        begins = _OBJECT_BEGINS.search(text, end or begins.start() + 1)  # what lies inside a whole object ends with it
    return None


def _object_at(raw: bytes, text: str, start: int) -> Piece | None:
    end = _end_of_object(text, start)
    if end is None:
        return None
    try:
        value = load_line(raw[start:end])
    except ValueError:
        return None
    return Piece(start, raw[start:end], value)


def _end_of_object(text: str, start: int) -> int | None:
    """Where the object that begins at ``start`` ends; None when it does not."""
    if text[start] != "{":
        return None
    try:
        return _decoder.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _reason(damaged: str) -> Reason:
    if "\0" in damaged:
        return "nul_bytes"
    if _is_broken_utf8(damaged.encode("latin-1")):
        return "bad_utf8"
    outside = _WHOLE_TEXT.sub("", damaged)
    opened = outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")
    return "torn" if damaged.lstrip().startswith("{") and ('"' in outside or opened > 0) else "bad_json"


def _is_broken_utf8(data: bytes) -> bool:
    """Whether there is more wrong than a character cut off at the end."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return False
