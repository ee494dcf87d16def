"""Parts of transcripts: read from either end or from a time on, or found by a search that goes on to the other end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lastlight_state.inspector import entries
from lastlight_state.inspector.entries import Entry

#: Lines that one step reads, and bytes of lines after which a page ends.
STEP, MOST_BYTES = 10, 512 * 1024
#: Lines that one step of a search reads, and bytes of lines after which a search pauses until it is continued.
SEARCH_STEP, MOST_SEARCHED = 50, 16 * 1024 * 1024
#: Least bytes that a line counts for in a search, since reading even a short line takes time.
LEAST = 512


@dataclass
class Part:
    """A part of a transcript: entries in order, its size in bytes, the cursor of the next part, and unreadable lines.

    ``start`` is the cursor from which reading forwards begins with this part. ``reset`` is True if the file was
    replaced since the previous part.
    """

    entries: list[Entry]
    bytes: int
    then: str | None
    start: str | None = None
    problems: list[Any] = field(default_factory=list)
    reset: bool = False


#: Reads a number of lines after a cursor, or before it.
Reading = Callable[[int, str | None], Part]


@dataclass
class Window:
    """A page of a transcript. ``then`` is the cursor of the next page, or of the rest of a search."""

    said: list[Entry]
    problems: list[Any]
    then: str | None


def window(read: Reading, limit: int, then: str | None, *, backwards: bool) -> Window:
    """Return the next entries in order: at most ``limit`` lines, or about half a megabyte."""
    parts: list[Part] = []
    left, size = limit, 0
    while left > 0 and size < MOST_BYTES:
        part = read(min(STEP, left), then)
        if part.reset:
            parts.clear()
        parts.append(part)
        left, size, then = left - STEP, size + part.bytes, part.then
        if then is None:
            break
    ordered = parts[::-1] if backwards else parts
    said = entries.pair_results(entries.shorten_texts(one) for part in ordered for one in part.entries)
    return Window(said, [problem for part in ordered for problem in part.problems], then)


def search(read: Reading, text: str, limit: int, then: str | None, *, backwards: bool) -> Window:
    """Return the entries that contain a text, ignoring case, up to the end of the transcript. Each has its ``place``.

    The search pauses after ``limit`` entries, half a megabyte of entries, or 16 MiB of reading. Then the window's
    ``then`` is the cursor to continue from.
    """
    wanted, found = text.casefold(), Window([], [], then)
    read_bytes, shown, step = 0, 0, SEARCH_STEP
    while read_bytes < MOST_SEARCHED and len(found.said) < limit and shown < MOST_BYTES:
        part = read(step, found.then)
        if part.reset:
            found.said, shown = [], 0
        said = entries.pair_results(map(entries.shorten_texts, part.entries))
        matching = [{**one, "place": part.start} for one in said if _has(one, wanted)]
        found.said = matching + found.said if backwards else found.said + matching
        shown += part.bytes if matching else 0
        read_bytes += max(part.bytes, LEAST * len(part.entries), LEAST)
        step = STEP if part.bytes > MOST_BYTES else SEARCH_STEP
        found.then = part.then
        if part.then is None:
            break
    return found


def place_of(read: Reading, moment: datetime, then: str | None) -> tuple[str | None, bool]:
    """Return the cursor from which to read the first entry at or after a time, and True if such an entry was found.

    After 16 MiB of reading, return the cursor to continue from, and False.
    """
    for step in (SEARCH_STEP, STEP):
        read_bytes = 0
        while True:
            part = read(step, then)
            if part.then is None or any(is_since(one, moment) for one in part.entries):
                break
            read_bytes += max(part.bytes, LEAST * len(part.entries), LEAST)
            then = part.then
            if read_bytes >= MOST_SEARCHED:
                return then, False
    return then, True


def is_since(one: Entry, moment: datetime) -> bool:
    """True if the entry's time is at or after this time."""
    return isinstance(one["at"], datetime) and one["at"] >= moment


def _has(one: Entry, wanted: str) -> bool:
    """True if any text of an entry contains the wanted text, which is in lower case."""
    said = [one["content"], one["reasoning"], one["tool"], one["record"]]
    for call in one["calls"]:
        said += [call["tool"], call["arguments"], call["result"] and call["result"]["content"]]
    return any(wanted in text.casefold() for text in _texts(said))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, field names included."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield str(name)
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)
