"""Diagrams as numbers: positions on a time axis. Templates draw these as SVG, next to a table of the same data.

All positions are in a box 1000 units wide, which the browser scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

WIDTH = 1000
#: Where the lanes begin, to the right of their names, and the height of a lane.
LEFT, LANE = 190, 22
#: Least width of a bar.
LEAST = 3.0
#: The space before a note, the width of one letter, and the fewest letters for which a note is drawn.
GAP, LETTER, LEAST_NOTE = 4.0, 6.0, 8
#: Most lanes and marks of a picture. Further ones appear in the table only.
MOST_LANES, MOST_MARKS = 40, 400


@dataclass(frozen=True)
class Bar:
    """An interval on the axis. ``end`` is None if it has not ended. ``kind`` decides its colour.

    ``key`` identifies the note that the template writes next to the bar, such as an error.
    """

    lane: str
    start: datetime
    end: datetime | None
    kind: str
    text: str
    key: str | None = None


@dataclass(frozen=True)
class Mark:
    """An event at one moment on the axis."""

    lane: str
    at: datetime
    kind: str
    text: str


@dataclass(frozen=True)
class Note:
    """The place of a text next to or inside a bar: its position, the side, and the number of letters that fit."""

    key: str
    x: float
    side: str
    room: int


@dataclass(frozen=True)
class Drawn:
    """A bar or mark with its position, and the place of its note."""

    x: float
    y: float
    width: float
    kind: str
    text: str
    note: Note | None = None


@dataclass(frozen=True)
class Axis:
    """A picture: named lanes with bars and marks, ticks with times, and the number of items left out."""

    height: int
    lanes: list[tuple[float, str]] = field(default_factory=list)
    bars: list[Drawn] = field(default_factory=list)
    marks: list[Drawn] = field(default_factory=list)
    ticks: list[tuple[float, datetime]] = field(default_factory=list)
    left_out: int = 0


def axis(bars: Sequence[Bar], marks: Sequence[Mark], now: datetime) -> Axis | None:
    """Draw intervals and events on a time axis. Returns None if there are none."""
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
    """Return the bars. A bar with a key gets a place for its note, if there is room without covering another bar."""
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
    """A column chart: one amount per name. ``top`` is the greatest amount, which fills the height."""

    columns: list[Drawn]
    heights: list[float]
    ticks: list[tuple[float, str]]
    top: float


#: The height of the chart, and how many columns are named below it.
HIGH, NAMED = 160, 6


def columns(amounts: Sequence[tuple[str, float, str]]) -> Columns:
    """Draw a column chart of amounts, each with its name and text, from left to right."""
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
    """A node of a run with its state, first start and last end. ``start`` is None if it has not run."""

    name: str
    state: str
    start: datetime | None
    end: datetime | None
    text: str


@dataclass(frozen=True)
class Box:
    """A step with its position."""

    x: int
    y: int
    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class Order:
    """A picture of steps in the order they ran. Steps in one column ran at the same time."""

    width: int
    height: int
    boxes: list[Box]
    left_out: int = 0


#: The width and height of a box with the space after it, and the most boxes of a picture.
BOX, ROW, MOST_BOXES = 170, 44, 120


def order(steps: Sequence[Step]) -> Order | None:
    """Draw steps in columns by their times, and steps that have not run in the last column.

    Returns None without steps.
    """
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
    """Return a copy of a diagram with a function applied to each of its texts."""
    if isinstance(part, str):
        return changed(part)
    if isinstance(part, list | tuple):
        return type(part)([with_texts(one, changed) for one in part])
    if isinstance(part, Axis | Box | Columns | Drawn | Order):
        return replace(part, **{one.name: with_texts(getattr(part, one.name), changed) for one in fields(part)})
    return part
