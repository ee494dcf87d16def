"""Recovers the whole JSON objects in a line that is not one JSON object.

Damage has few causes: a writer was killed in the middle of a line, and the next writer appended its line to it; two
writers wrote without locks; a power loss left a run of NULs. Objects that were written completely are still intact in
the line, so they are searched for:

1. runs of NUL at both ends are stripped;
2. a plain concatenation of whole objects is split;
3. otherwise every object is found that ends at the end of the line, before another object or before a NUL, if the
   reader's domain accepts it;
4. and after the last of these, an object that ends before anything that cannot follow an object.

The domain must accept an object, because a line torn just after a nested object also ends in text that parses.

The positions where an object may end are known, so its beginning is found by reading backwards to the matching brace.
Each byte is read a few times at most, however deep the torn part is nested (`brackets`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from lastlight_state.codec import load_line

# Matching of brackets in text that may not be JSON, without parsing it, in linear time.
#
# Reading backwards works because every quote inside a JSON string follows a backslash, and no quote outside does.

#: The most open levels. Lines of this library have at most 500.
DEEPEST = 1_000

# No group is possessive: before 3.11.5 Python matches such a repetition wrongly if its last round fails half-way.
_TEXT = rb'"(?>(?:[^"\\]++|\\.)*)"'
_TEXT_IN_MIRROR = rb'"[^"]*+(?>(?:"(?=\\)[^"]*+)*)"'
_FORWARD = re.compile(rb'(?>(?:[^"{}\[\]\0]++|%b)*)(?:([{\[])|([}\]])|["\0])' % _TEXT, re.DOTALL)
_BACKWARD = re.compile(rb'(?>(?:[^"{}\[\]\0]++|%b)*)(?:([}\]])|([{\[])|["\0])' % _TEXT_IN_MIRROR, re.DOTALL)
_OPENS = 1  # the group that matched
_BRACE = ord("{")


class Match(NamedTuple):
    """The number of bytes read, and True if they form one complete group of brackets."""

    scanned: int
    is_whole: bool


def forward(raw: bytes, start: int) -> Match:
    """Match the brackets of the object that begins at ``start``."""
    return _match_braces(_FORWARD, raw, start) if raw[start : start + 1] == b"{" else Match(0, False)


def backward(mirror: bytes, start: int) -> Match:
    """Match the brackets of the object that ends with the brace at ``start``. The text is given in reverse.

    If another object begins after a brace, that brace ends an object, and no other object can extend beyond it.
    """
    return _match_braces(_BACKWARD, mirror, start, apart=True)


def are_left_open(raw: bytes) -> bool:
    """True if a string or a bracket is still open at the end of the text."""
    at, depth = 0, 0
    while token := _FORWARD.match(raw, at):
        at = token.end()
        if token.lastindex is None:
            return True
        depth += 1 if token.lastindex == _OPENS else -1
    return depth > 0


def _match_braces(pattern: re.Pattern[bytes], raw: bytes, start: int, *, apart: bool = False) -> Match:
    at, depth = start, 0
    while token := pattern.match(raw, at):
        at = token.end()
        if token.lastindex is None:  # a NUL, or a quote whose partner was not found before the end
            return Match((at if raw[at - 1] == 0 else len(raw)) - start, False)
        if token.lastindex == _OPENS:
            depth += 1
            if depth > DEEPEST or (apart and depth > 1 and raw[at - 2] == _BRACE):
                break
        else:
            depth -= 1
            if depth == 0:
                return Match(at - start, True)
    return Match((at if token else len(raw)) - start, False)


Reason: TypeAlias = Literal["torn", "bad_json", "bad_utf8", "not_object", "nul_bytes", "glued", "oversize"]
Accepts: TypeAlias = Callable[[dict[str, Any]], bool]

#: The most passes over a line's damaged part in search of objects, for each of the two kinds of ends.
MOST_SCANS = 4

#: The bytes of a blank line.
BLANK = b" \t\r"
_NUL_OR_BLANK = b"\0 \t\r"
_GAP = re.compile(rb"[\0 \t\r]*+")
_END_IN_MIRROR = re.compile(rb"(?<=[\0{])\}")
#: An object's end before noise, unless the text goes on as an enclosing object would: then the object could be a part
#: of that. A text within a record may contain such a position too, so it is tried last.
_ODD_END_IN_MIRROR = re.compile(rb"(?<=[^,\]} \t\r])\}")


class Piece(NamedTuple):
    """A whole object that was found in a line, and its offset in the line."""

    start: int
    raw: bytes
    value: dict[str, Any]

    @property
    def end(self) -> int:
        """Return the offset in the line at which the object ends."""
        return self.start + len(self.raw)


class Verdict(NamedTuple):
    """The objects in a line, and its fault, which is None for a sound or blank line."""

    pieces: tuple[Piece, ...]
    reason: Reason | None


def judge(raw: bytes, accepts: Accepts) -> Verdict:
    """Return the objects and the fault of a line. The line is given without its newline. Never raises."""
    if not raw.strip(BLANK):
        return Verdict((), None)
    try:
        value = load_line(raw)
    except ValueError:
        return Recovery(raw, accepts).verdict()
    return Verdict((Piece(0, raw, value),), None) if isinstance(value, dict) else Verdict((), "not_object")


def reason_of(damaged: bytes) -> Reason:
    """Return why a part of a line holds no record."""
    if b"\0" in damaged:
        return "nul_bytes"
    if _is_broken_utf8(damaged):
        return "bad_utf8"
    begins = damaged.lstrip(BLANK).startswith(b"{")
    return "torn" if begins and are_left_open(damaged) else "bad_json"


class Recovery:
    """The search for objects in one line.

    ``scanned`` counts the bytes read: at most a small multiple of the line's length.
    """

    def __init__(self, raw: bytes, accepts: Accepts) -> None:
        self.scanned = 0
        self._raw = raw
        self._accepts = accepts
        self._mirror = b""  # the reversed line, made on demand

    def verdict(self) -> Verdict:
        """Return the objects and the fault of the line."""
        raw = self._raw
        start = len(raw) - len(raw.lstrip(_NUL_OR_BLANK))
        stop = len(raw.rstrip(_NUL_OR_BLANK))
        if start >= stop:
            return Verdict((), "nul_bytes")
        leading, reached = self._leading_objects(start, stop)
        if reached >= stop:
            return Verdict(tuple(leading), "glued" if len(leading) > 1 else "nul_bytes")
        self._mirror = raw[::-1]
        behind = list(self._behind(reached, stop, _END_IN_MIRROR))[::-1]
        behind += list(self._behind(behind[-1].end if behind else reached, stop, _ODD_END_IN_MIRROR))[::-1]
        kept = [piece for piece in leading if self._accepts(piece.value)]
        damaged = raw[reached : behind[0].start if behind else len(raw)]
        return Verdict((*kept, *behind), reason_of(damaged))

    def _leading_objects(self, start: int, stop: int) -> tuple[list[Piece], int]:
        """Return the whole objects that directly follow one another from ``start`` on, and the offset after them."""
        pieces: list[Piece] = []
        while start < stop:
            matched = forward(self._raw, start)
            self.scanned += matched.scanned
            piece = self._object(start, start + matched.scanned) if matched.is_whole else None
            if piece is None:
                break
            pieces.append(piece)
            gap = _GAP.match(self._raw, piece.end)
            start = gap.end() if gap else piece.end
        return pieces, start

    def _behind(self, first: int, stop: int, ends: re.Pattern[bytes]) -> Iterator[Piece]:
        """Yield the accepted objects between ``first`` and ``stop``, last one first."""
        most = self.scanned + MOST_SCANS * (stop - first)
        end = stop if self._raw[stop - 1 : stop] == b"}" else self._end_before(stop, ends)
        while end > first and self.scanned < most:
            matched = backward(self._mirror, len(self._raw) - end)
            self.scanned += matched.scanned
            start = end - matched.scanned
            piece = self._object(start, end) if matched.is_whole and start >= first else None
            if piece is not None and self._accepts(piece.value):
                yield piece
                end = start + 1
            end = self._end_before(end - 1, ends)

    def _end_before(self, limit: int, ends: re.Pattern[bytes]) -> int:
        """Return the last position up to ``limit`` where an object may end; or 0 if there is none."""
        size = len(self._raw)
        found = ends.search(self._mirror, size - limit)
        return size - found.start() if found else 0

    def _object(self, start: int, end: int) -> Piece | None:
        self.scanned += end - start
        raw = self._raw[start:end]
        try:
            value = load_line(raw)
        except ValueError:
            return None
        return Piece(start, raw, value) if isinstance(value, dict) else None


def _is_broken_utf8(data: bytes) -> bool:
    """True if the text is not UTF-8. A character that is cut off at the end does not count."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason != "unexpected end of data"
    return False
