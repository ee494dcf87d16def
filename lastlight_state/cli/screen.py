"""Output for people: plain aligned text, coloured only on a terminal that allows it.

All text goes through `Screen.write`, which escapes control characters and characters that change the direction of text.
So text from an agent cannot control the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Generic, Protocol, TextIO, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from lastlight_state import codec
from lastlight_state.cli.arguments import since
from lastlight_state.clock import SYSTEM_CLOCK, ago, iso_text
from lastlight_state.plain import CONTROL, plain, printable

# Tables for people: complete without a terminal, otherwise as wide as the terminal. On a terminal, times are relative
# and ids are as short as the page allows. Columns that do not fit are left out by their rank, and named below the
# table. A text that a person must read is never cut: it stands below its row, in as many lines as it needs. If even the
# columns that must stay are too wide, each item becomes a block of lines.

GAP = "  "
LEAST_WIDTH = 12
#: Least length of a shortened id. Of the library's own ids, this covers the millisecond of their creation.
LEAST_ID = 13
#: Spaces before a text that stands below its row.
INDENT = 4


class TableScreen(Protocol):
    """The interface of a screen that tables are drawn on: see `lastlight_state.cli.screen.Screen`."""

    width: int | None
    local: bool

    def format_value(self, value: Any) -> str: ...

    def style_value(self, value: Any) -> Text: ...

    def heading(self, text: str) -> Text: ...

    def indented_lines(self, text: str) -> Iterator[Text]: ...


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[T_contra]):
    """A column of a table: its title, and a function that returns its value for an item.

    A constant names the type of its items, so that the type checker knows their fields:
    ``RUNS: tuple[Column[RunEntry], ...] = (Column("STATE", lambda one: one.state), …)``.

    ``keep``: values are never cut. ``is_id``: on a terminal, a value is shown as the shortest prefix that no other item
    of the page has. ``below``: the value is a text that a person must read. ``rank``: on a narrow terminal, columns of
    the highest rank are left out first, and those of rank 0 never.
    """

    title: str
    of: Callable[[T_contra], Any]
    keep: bool = False
    right: bool = False
    is_id: bool = False
    below: bool = False
    rank: int = 0


Rows = list[list[Text]]


def table(screen: TableScreen, columns: Sequence[Column[T]], items: Sequence[T]) -> Iterator[Text]:
    """Return the lines of a table, the heading first."""
    whole = [[screen.style_value(column.of(item)) for column in columns] for item in items]
    if screen.width is None:
        return _lines(screen, columns, whole, _widths(columns, whole))
    return _fitted_lines(screen, columns, items, whole, screen.width)


def _fitted_lines(
    screen: TableScreen, columns: Sequence[Column[T]], items: Sequence[T], whole: Rows, room: int
) -> Iterator[Text]:
    cells = list(zip(*(_brief(screen, column, items) for column in columns), strict=True))
    shown = [i for i, column in enumerate(columns)]
    below = [i for i in shown if columns[i].below]
    if not _fits([columns[i] for i in shown], _pick_columns(cells, shown), room, least=False):
        shown = [i for i in shown if i not in below]
    else:
        below = []
    left: list[str] = []
    while not _fits([columns[i] for i in shown], _pick_columns(cells, shown), room, least=True):
        leaving = max(shown, key=lambda i: columns[i].rank)
        if not columns[leaving].rank:
            yield from blocks(screen, columns, whole, room)
            return
        shown.remove(leaving)
        left.append(columns[leaving].title)
    chosen, rows = [columns[i] for i in shown], _pick_columns(cells, shown)
    heading, *drawn = _lines(screen, chosen, rows, _narrow_widths(_widths(chosen, rows), chosen, room))
    yield heading
    for line, row, item in zip(drawn, whole, items, strict=True):
        yield line
        for i in below:
            value = columns[i].of(item)
            if isinstance(value, str):
                yield from screen.indented_lines(value)
            elif row[i].plain != "-":
                yield from wrap_text(row[i], room, INDENT)
    if left:
        told = f"(no room for {', '.join(reversed(left))}: a wider terminal, a pipe or --json has them)"
        yield from wrap_text(Text(told, "dim"), room, 0)


def blocks(screen: TableScreen, columns: Sequence[Column[Any]], rows: Rows, room: int) -> Iterator[Text]:
    """Return each item as a block of lines. Each line has a title and a value, and long values are wrapped."""
    width = max((cell_len(column.title) for column in columns), default=0)
    for number, row in enumerate(rows, 1):
        yield screen.heading(f"-- {number} --")
        for column, cell in zip(columns, row, strict=True):
            whole = column.keep or column.is_id
            first, *rest = [cell] if whole else wrap_text(cell, max(room - width - len(GAP), LEAST_WIDTH), 0)
            yield Text.assemble((screen.heading(column.title).plain.ljust(width) + GAP, "dim"), first)
            yield from (Text(" " * (width + len(GAP))).append_text(line) for line in rest)


def _brief(screen: TableScreen, column: Column[T], items: Sequence[T]) -> list[Text]:
    """Return the cells of a column for a terminal: with shortened ids and relative times."""
    values = [column.of(item) for item in items]
    if column.is_id:
        short = shortest([screen.format_value(value) for value in values])
        return [Text(short[screen.format_value(value)]) for value in values]
    now = SYSTEM_CLOCK.now()
    return [
        Text(since(value, now)) if isinstance(value, datetime) and not screen.local else screen.style_value(value)
        for value in values
    ]


def shortest(texts: Sequence[str]) -> dict[str, str]:
    """Return all texts cut to the same length, the shortest at which they still differ."""
    length = max([LEAST_ID - 1, *(_common(one, other) for one, other in pairwise(sorted(set(texts))))]) + 1
    return {text: text[:length] for text in texts}


def _common(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _pick_columns(cells: Sequence[Sequence[Text]], shown: Sequence[int]) -> Rows:
    return [[row[i] for i in shown] for row in cells]


def _widths(columns: Sequence[Column[Any]], rows: Rows) -> list[int]:
    widest = [max((cell_len(row[i].plain) for row in rows), default=0) for i in range(len(columns))]
    return [max(cell_len(column.title), width) for column, width in zip(columns, widest, strict=True)]


def _fits(columns: Sequence[Column[Any]], rows: Rows, room: int, *, least: bool) -> bool:
    """True if the columns fit into the room.

    With ``least``, each column counts with the least width to which it may be cut.
    """
    widths = _widths(columns, rows)
    if least:
        widths = [w if c.keep or c.is_id else min(w, LEAST_WIDTH) for w, c in zip(widths, columns, strict=True)]
    return sum(widths) + len(GAP) * (len(widths) - 1) <= room


def _narrow_widths(widths: list[int], columns: Sequence[Column[Any]], room: int) -> list[int]:
    """Return the widths with the widest columns cut until all columns fit, as far as columns may be cut."""
    may_be_cut = [i for i, column in enumerate(columns) if not column.keep and not column.is_id]
    while sum(widths) + len(GAP) * (len(widths) - 1) > room:
        widest = max(may_be_cut, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= LEAST_WIDTH:
            break
        widths[widest] -= 1
    return widths


def _lines(screen: TableScreen, columns: Sequence[Column[Any]], rows: Rows, widths: Sequence[int]) -> Iterator[Text]:
    for row in ([screen.heading(column.title) for column in columns], *rows):
        yield _aligned_line(row, widths, columns)


def _aligned_line(cells: Sequence[Text], widths: Sequence[int], columns: Sequence[Column[Any]]) -> Text:
    line = Text()
    for i, (cell, width, column) in enumerate(zip(cells, widths, columns, strict=True)):
        last = i == len(columns) - 1
        fitting = _cut(cell, width)
        blanks = " " * (width - cell_len(fitting.plain))
        parts = (blanks, fitting) if column.right else (fitting, "" if last else blanks)
        line = line.append_text(Text.assemble(*parts, "" if last else GAP))
    return line


def _cut(cell: Text, width: int) -> Text:
    if cell_len(cell.plain) <= width:
        return cell
    return Text(set_cell_size(cell.plain, width - 1) + "…", style=cell.style)


def wrap_text(cell: Text, room: int | None, indent: int) -> Iterator[Text]:
    """Return the text in lines that fit into ``room`` characters, each indented.

    Without ``room`` nothing is wrapped.
    """
    lines = [cell] if room is None else cell.wrap(_MEASURE, max(room - indent, LEAST_WIDTH))
    for line in lines or [cell]:
        line.rstrip()
        yield Text(" " * indent).append_text(line)


#: Used only to measure and wrap text.
_MEASURE = Console(width=80)


HEADING = "bold"

_STYLES = {
    "green": ("succeeded", "approved", "current", "active", "running"),
    "yellow": ("paused", "pending", "queued", "behind", "ahead", "interrupted"),
    "red": ("failed", "rejected", "incompatible", "foreign", "unversioned", "unreleased", "expired"),
}
_STYLE_OF = {word: style for style, words in _STYLES.items() for word in words}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error to the caller. By default, the console would end the process with its own exit code."""
        raise BrokenPipeError


class Screen:
    """One output stream for people. ``width`` is None if the stream is not a terminal."""

    def __init__(self, stream: TextIO, *, colour: bool = True, local: bool = False) -> None:
        terminal = stream.isatty()
        coloured = terminal and colour and not os.environ.get("NO_COLOR")
        self._console = _Console(
            file=stream,
            force_terminal=terminal,
            color_system="auto" if coloured else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.local = local
        self.width = self._console.width if terminal else None

    def write(self, line: str | Text) -> None:
        """Write one line, or several if the text contains line breaks."""
        text = line if isinstance(line, Text) else Text("\n".join(printable(part) for part in line.split("\n")))
        for part in text.split("\n", allow_blank=True) or [text]:
            self._console.print(_harmless(part), soft_wrap=True)

    def format_value(self, value: Any) -> str:
        """Convert a value to one line of text for people."""
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, datetime):
            return value.astimezone().isoformat(timespec="milliseconds") if self.local else iso_text(value)
        if isinstance(value, Decimal):
            return f"{value:.6f}".rstrip("0").rstrip(".")
        if isinstance(value, dict | list | tuple):
            return printable(codec.encode_sound(plain(value)).decode())
        return printable(str(value))

    def style_value(self, value: Any) -> Text:
        """Convert a value to text in the colour of the word, such as red for ``failed``."""
        text = self.format_value(value)
        return Text(text, style=_STYLE_OF.get(text, ""))

    def heading(self, text: str) -> Text:
        """Return a heading line."""
        return Text(printable(text), style=HEADING)

    def table(self, columns: Sequence[Column[T]], items: Sequence[T]) -> Iterator[Text]:
        """Return a heading line and a line per item. On a terminal, the lines are fitted to its width."""
        return table(self, columns, items)

    def ago(self, moment: datetime, now: datetime) -> str:
        """Return how long ago a time was. If stdout is not a terminal, or with ``--local``, return the time itself."""
        return self.format_value(moment) if self.width is None or self.local else ago(moment, now)

    def indented_lines(self, text: str) -> Iterator[Text]:
        """Return the complete text, indented and wrapped to the terminal's width, without empty lines."""
        for line in text.splitlines():
            if line.strip():
                yield from wrap_text(Text(printable(line.rstrip())), self.width, INDENT)

    def hanging_lines(self, name: str, text: str) -> Iterator[Text]:
        """Return lines with a name, and a text next to it. Further lines of the text are aligned with the first."""
        return self._hanging_lines(name, Text(printable(text)))

    def _hanging_lines(self, name: str, text: Text) -> Iterator[Text]:
        first, *rest = wrap_text(text, self.width and self.width - len(name) - len(GAP), 0)
        yield Text.assemble((name + GAP, "dim"), first)
        yield from (Text(" " * (len(name) + len(GAP))).append_text(line) for line in rest)

    def wrapped_lines(self, text: str) -> Iterator[Text]:
        """Return the complete text, wrapped to the terminal's width. If there is no terminal, return it on one line."""
        return wrap_text(Text(printable(text)), self.width, 0)

    def fields(self, values: dict[str, Any]) -> Iterator[Text]:
        """Return one line for each name with its value. All values begin in the same column."""
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            yield from self._hanging_lines(name.ljust(width), self.style_value(value))


def _harmless(text: Text) -> Text:
    """Return the text with control characters escaped (`printable`). Its styles are kept."""
    found = [(match.start(), match.end()) for match in CONTROL.finditer(text.plain)]
    if not found:
        return text
    pieces = text.divide(sorted({place for span in found for place in span} - {0, len(text)}))
    return Text.assemble(*(Text(printable(p.plain)) if CONTROL.search(p.plain) else p for p in pieces))
