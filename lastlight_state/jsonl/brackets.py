"""Matching brackets in text that may not be JSON, without parsing it, in linear time.

Reading backwards works because inside a JSON string every quote has a backslash before it, and outside none has.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The most open levels. Lines of this library have at most 500.
DEEPEST = 1_000

# No group is possessive: before 3.11.5 Python matches such a repetition wrongly where its last round fails half-way.
_TEXT = rb'"(?>(?:[^"\\]++|\\.)*)"'
_TEXT_IN_MIRROR = rb'"[^"]*+(?>(?:"(?=\\)[^"]*+)*)"'
_FORWARD = re.compile(rb'(?>(?:[^"{}\[\]\0]++|%b)*)(?:([{\[])|([}\]])|["\0])' % _TEXT, re.DOTALL)
_BACKWARD = re.compile(rb'(?>(?:[^"{}\[\]\0]++|%b)*)(?:([}\]])|([{\[])|["\0])' % _TEXT_IN_MIRROR, re.DOTALL)
_OPENS = 1  # the group that matched
_BRACE = ord("{")


class Match(NamedTuple):
    """How many bytes were read, and whether they are one whole group of brackets."""

    scanned: int
    is_whole: bool


def forward(raw: bytes, start: int) -> Match:
    """The object that begins at ``start``."""
    return _matched(_FORWARD, raw, start) if raw[start : start + 1] == b"{" else Match(0, False)


def backward(mirror: bytes, start: int) -> Match:
    """The object that ends with the brace at ``start``; the text is reversed.

    A brace behind which another object begins ends an object of its own, so no other reaches beyond it.
    """
    return _matched(_BACKWARD, mirror, start, apart=True)


def are_left_open(raw: bytes) -> bool:
    """Whether a string or a bracket is still open at the end."""
    at, depth = 0, 0
    while token := _FORWARD.match(raw, at):
        at = token.end()
        if token.lastindex is None:
            return True
        depth += 1 if token.lastindex == _OPENS else -1
    return depth > 0


def _matched(pattern: re.Pattern[bytes], raw: bytes, start: int, *, apart: bool = False) -> Match:
    at, depth = start, 0
    while token := pattern.match(raw, at):
        at = token.end()
        if token.lastindex is None:  # a NUL, or a quote whose other one was looked for up to the end
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
