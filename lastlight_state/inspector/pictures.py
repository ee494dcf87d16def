"""Pictures as numbers: where things stand on an axis of time. Templates draw them as SVG, beside a table of the same.

All positions are in a box that is 1000 wide; the browser scales it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

WIDTH = 1000
#: Where the lanes begin, right of their names, and how high one is.
LEFT, LANE = 190, 22
#: How narrow a bar may become.
LEAST = 3.0
#: The space before a note, how wide a letter of it is, and from how many letters on it is worth its room.
GAP, LETTER, LEAST_NOTE = 4.0, 6.0, 8
#: The most lanes and marks of a picture: more are in the table alone.
MOST_LANES, MOST_MARKS = 40, 400


@dataclass(frozen=True)
class Bar:
    """Something that lasted. ``end`` is None while it lasts; ``kind`` decides its colour.

    ``key`` is that of what a template writes beside the bar, such as an error.
    """

    lane: str
    start: datetime
    end: datetime | None
    kind: str
    text: str
    key: str | None = None


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment."""

    lane: str
    at: datetime
    kind: str
    text: str


@dataclass(frozen=True)
class Note:
    """Where a text stands beside a bar or in it: its place, on which side of the bar, how many letters have room."""

    key: str
    x: float
    side: str
    room: int


@dataclass(frozen=True)
class Drawn:
    """A bar or mark with its place, and where a note of it stands."""

    x: float
    y: float
    width: float
    kind: str
    text: str
    note: Note | None = None


@dataclass(frozen=True)
class Axis:
    """A picture: lanes with their names, what is in them, ticks with their times, and what was left out."""

    height: int
    lanes: list[tuple[float, str]] = field(default_factory=list)
    bars: list[Drawn] = field(default_factory=list)
    marks: list[Drawn] = field(default_factory=list)
    ticks: list[tuple[float, datetime]] = field(default_factory=list)
    left_out: int = 0


def axis(bars: Sequence[Bar], marks: Sequence[Mark], now: datetime) -> Axis | None:
    """Return the picture of what lasted and happened. None without anything."""
    times = [*(bar.start for bar in bars), *(bar.end or now for bar in bars), *(mark.at for mark in marks)]
    if not times:
        return None
    first, last = min(times), max(times)
    span = max((last - first).total_seconds(), 0.001)
    names = list(dict.fromkeys([*(bar.lane for bar in bars), *(mark.lane for mark in marks)]))[:MOST_LANES]
    places = {name: number * LANE for number, name in enumerate(names)}

    def x(at: datetime) -> float:
        return round(LEFT + (WIDTH - LEFT - 10) * (at - first).total_seconds() / span, 1)

    shown_marks = [mark for mark in marks if mark.lane in places][:MOST_MARKS]
    shown_bars = [bar for bar in bars if bar.lane in places][:MOST_MARKS]
    return Axis(
        height=len(names) * LANE + 24,
        lanes=[(places[name], name) for name in names],
        bars=_with_notes(
            [_bar(bar, places[bar.lane], x(bar.start), x(max(bar.end or now, bar.start))) for bar in shown_bars],
            [bar.key for bar in shown_bars],
        ),
        marks=[Drawn(x(mark.at), places[mark.lane], 0, mark.kind, mark.text) for mark in shown_marks],
        ticks=_ticks(first, last, x(first), x(last)),
        left_out=len(bars) + len(marks) - len(shown_bars) - len(shown_marks),
    )


def _bar(bar: Bar, y: float, start: float, end: float) -> Drawn:
    return Drawn(start, y, max(round(end - start, 1), LEAST), bar.kind, bar.text)


def _with_notes(drawn: Sequence[Drawn], keys: Sequence[str | None]) -> list[Drawn]:
    """Return the bars, of which those with a key have the place of a note where it covers no other bar."""
    found = []
    for bar, key in zip(drawn, keys, strict=True):
        others = [one for one in drawn if one.y == bar.y and one is not bar]
        left = max((one.x + one.width for one in others if one.x <= bar.x), default=float(LEFT))
        right = min((one.x for one in others if one.x > bar.x), default=float(WIDTH))
        end = bar.x + bar.width
        rooms = {"right": right - end, "left": bar.x - left, "inside": bar.width if right >= end else 0.0}
        side = max(rooms, key=lambda name: rooms[name])
        room = int((rooms[side] - 2 * GAP) / LETTER)
        if key is None or room < LEAST_NOTE:
            found.append(bar)
            continue
        x = {"right": end + GAP, "left": bar.x - GAP, "inside": bar.x + GAP}[side]
        found.append(replace(bar, note=Note(key, round(x, 1), side, room)))
    return found


def _ticks(first: datetime, last: datetime, left: float, right: float) -> list[tuple[float, datetime]]:
    parts: Iterable[int] = range(5 if last > first else 1)
    return [(round(left + (right - left) * part / 4, 1), first + (last - first) * part / 4) for part in parts]


@dataclass(frozen=True)
class Columns:
    """A picture of a number for each of some times: columns, and the greatest number that the box holds."""

    columns: list[Drawn]
    heights: list[float]
    ticks: list[tuple[float, str]]
    top: float


#: The height of the columns, and how many times are named below them.
HIGH, NAMED = 160, 6


def columns(amounts: Sequence[tuple[str, float, str]]) -> Columns:
    """Return the picture of amounts, each with its name and its text, from left to right."""
    top = max((amount for _, amount, _ in amounts), default=0)
    step = WIDTH / max(len(amounts), 1)
    every = max(len(amounts) // NAMED, 1)
    heights = [round(HIGH * amount / top, 1) if top else 0.0 for _, amount, _ in amounts]
    return Columns(
        columns=[
            Drawn(round(place * step, 1), HIGH - height, round(max(step - 2, 1), 1), "amount", f"{name}: {text}")
            for place, ((name, _, text), height) in enumerate(zip(amounts, heights, strict=True))
        ],
        heights=heights,
        ticks=[(round(place * step, 1), amounts[place][0]) for place in range(0, len(amounts), every)],
        top=top,
    )


@dataclass(frozen=True)
class Step:
    """A node of a run: its state, and when it ran first and last. ``start`` is None for one that did not run."""

    name: str
    state: str
    start: datetime | None
    end: datetime | None
    text: str


@dataclass(frozen=True)
class Box:
    """A step with its place."""

    x: int
    y: int
    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class Order:
    """A picture of steps in the order in which they ran. Those of one column ran beside one another."""

    width: int
    height: int
    boxes: list[Box]
    left_out: int = 0


#: How wide and how high a box is, with the space behind it; and the most boxes of a picture.
BOX, ROW, MOST_BOXES = 170, 44, 120


def order(steps: Sequence[Step]) -> Order | None:
    """Return the picture of steps. Those that did not run are in the last column. None without any."""
    if not steps:
        return None
    ran = sorted(((one.start, one) for one in steps if one.start is not None), key=lambda pair: pair[0])
    columns: list[list[Step]] = []
    until: datetime | None = None
    for start, one in ran:
        if not columns or (until is not None and start >= until):
            columns.append([])
            until = None
        columns[-1].append(one)
        until = min((end for end in (until, one.end) if end is not None), default=None)
    if waiting := [one for one in steps if one.start is None]:
        columns.append(waiting)
    boxes = [
        Box(place * BOX, row * ROW, one.state, one.name, one.text)
        for place, column in enumerate(columns)
        for row, one in enumerate(column)
    ]
    shown = boxes[:MOST_BOXES]
    width, height = (max(getattr(box, side) for box in shown) for side in ("x", "y"))
    return Order(width + BOX, height + ROW, shown, len(boxes) - len(shown))


def with_texts(part: Any, changed: Callable[[str], str]) -> Any:
    """Return a picture with each of its texts changed."""
    if isinstance(part, str):
        return changed(part)
    if isinstance(part, list | tuple):
        return type(part)([with_texts(one, changed) for one in part])
    if isinstance(part, Axis | Box | Columns | Drawn | Order):
        return replace(part, **{one.name: with_texts(getattr(part, one.name), changed) for one in fields(part)})
    return part
