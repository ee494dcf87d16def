"""Parts of transcripts: read from either end, searched to their other end, and begun at a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lastlight_state.inspector import entries
from lastlight_state.inspector.entries import Entry

#: How many lines are read at once, and after how many bytes of lines a page ends.
STEP, MOST_BYTES = 10, 512 * 1024
#: How many lines a search reads at once, and after how many bytes of lines it stops and asks whether to go on.
SEARCH_STEP, MOST_SEARCHED = 50, 16 * 1024 * 1024
#: What a line counts at least in a search: reading one has a price, however short it is.
LEAST = 512


@dataclass
class Part:
    """A part of a transcript: its entries in their order, its bytes, where the next part begins, and bad lines.

    ``start`` is where reading forwards begins with this part. ``reset``: the file is another one than that of the part
    before.
    """

    entries: list[Entry]
    bytes: int
    then: str | None
    start: str | None = None
    problems: list[Any] = field(default_factory=list)
    reset: bool = False


#: Reads the lines behind a place, or before it: how many, and the place.
Reading = Callable[[int, str | None], Part]


@dataclass
class Window:
    """What a page of a transcript has. ``then`` is where the next page, or the rest of a search, begins."""

    said: list[Entry]
    problems: list[Any]
    then: str | None


def window(read: Reading, limit: int, then: str | None, *, backwards: bool) -> Window:
    """Return the next entries in their order, at most ``limit`` lines or about half a megabyte of them."""
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
    said = entries.paired(entries.shortened(one) for part in ordered for one in part.entries)
    return Window(said, [problem for part in ordered for problem in part.problems], then)


def search(read: Reading, text: str, limit: int, then: str | None, *, backwards: bool) -> Window:
    """Return the entries that have a text in any case, each with its ``place``, to the end of the transcript.

    After ``limit`` of them, half a megabyte of them, or 16 MiB that were read, ``then`` is where the search goes on.
    """
    wanted, found = text.casefold(), Window([], [], then)
    read_bytes, shown, step = 0, 0, SEARCH_STEP
    while read_bytes < MOST_SEARCHED and len(found.said) < limit and shown < MOST_BYTES:
        part = read(step, found.then)
        if part.reset:
            found.said, shown = [], 0
        said = entries.paired(map(entries.shortened, part.entries))
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
    """Return where reading forwards meets the first entry of this moment or later, and whether that was found.

    After 16 MiB it is where to look on.
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
    """True if an entry is of this moment or later."""
    return isinstance(one["at"], datetime) and one["at"] >= moment


def _has(one: Entry, wanted: str) -> bool:
    """True if something that was said in an entry has the text."""
    said = [one["content"], one["reasoning"], one["tool"], one["record"]]
    for call in one["calls"]:
        said += [call["tool"], call["arguments"], call["result"] and call["result"]["content"]]
    return any(wanted in text.casefold() for text in _texts(said))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, the names of its fields among them."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield str(name)
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)
