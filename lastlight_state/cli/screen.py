"""Where people read: plain aligned text, coloured only on a terminal that wants it.

Whatever is written goes through `Screen.write`, which escapes control characters and
those that turn the direction of text: what an agent has said must not move somebody's cursor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from lastlight_state import codec
from lastlight_state.cli import tables
from lastlight_state.cli.tables import GAP, Column
from lastlight_state.clock import iso_text
from lastlight_state.plain import CONTROL, plain, printable

HEADING = "bold"

_STYLES = {
    "green": ("succeeded", "approved", "current", "active", "running"),
    "yellow": ("paused", "pending", "queued", "behind", "ahead", "interrupted"),
    "red": ("failed", "rejected", "incompatible", "foreign", "unversioned", "unreleased", "expired"),
}
_STYLE_OF = {word: style for style, words in _STYLES.items() for word in words}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the caller: the console's own answer is to end the process with an exit code of its own."""
        raise BrokenPipeError


class Screen:
    """One stream as a place to draw on. ``width`` is None where there is no terminal."""

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
        """Write one line, or several where it holds line breaks."""
        text = line if isinstance(line, Text) else Text("\n".join(printable(part) for part in line.split("\n")))
        for part in text.split("\n", allow_blank=True) or [text]:
            self._console.print(_harmless(part), soft_wrap=True)

    def shown(self, value: Any) -> str:
        """Return a value as text for people, on one line."""
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

    def styled(self, value: Any) -> Text:
        """Return the value, in the colour of its word."""
        text = self.shown(value)
        return Text(text, style=_STYLE_OF.get(text, ""))

    def heading(self, text: str) -> Text:
        """Return a heading line."""
        return Text(printable(text), style=HEADING)

    def table(self, columns: Sequence[Column], items: Sequence[Any]) -> Iterator[Text]:
        """Return a heading line and a line for each item. On a terminal they are as in `lastlight_state.cli.tables`."""
        return tables.table(self, columns, items)

    def wrapped(self, text: str) -> Iterator[Text]:
        """Return a text whole, in indented lines as wide as the terminal, or in one where there is none."""
        return tables.wrapped(Text(printable(text)), self.width, tables.INDENT)

    def filled(self, text: str) -> Iterator[Text]:
        """Return a text whole, in lines as wide as the terminal, or in one where there is none."""
        return tables.wrapped(Text(printable(text)), self.width, 0)

    def fields(self, values: dict[str, Any]) -> Iterator[Text]:
        """Return one line for each name and value, values aligned."""
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            yield Text.assemble((name.ljust(width) + GAP, "dim"), self.styled(value))


def _harmless(text: Text) -> Text:
    """Return the text with its styles, `printable`."""
    found = [(match.start(), match.end()) for match in CONTROL.finditer(text.plain)]
    if not found:
        return text
    pieces = text.divide(sorted({place for span in found for place in span} - {0, len(text)}))
    return Text.assemble(*(Text(printable(p.plain)) if CONTROL.search(p.plain) else p for p in pieces))
