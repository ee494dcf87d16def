from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text
from support.cli.calls import Terminal
from support.each import with_each

from lastlight_state.cli.screen import Column, Screen
from lastlight_state.plain import printable_json

COLUMNS: tuple[Column[tuple[str, str, int]], ...] = (
    Column("ID", lambda item: item[0], keep=True),
    Column("TEXT", lambda item: item[1]),
    Column("COUNT", lambda item: item[2], right=True),
)
ITEMS = [("0123456789abcdef" * 2, "succeeded", 7), ("x", "東京 " * 40, 12_345)]


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def drawn(stream: io.StringIO, **options: Any) -> str:
    screen = Screen(stream, **options)
    for line in screen.table(COLUMNS, ITEMS):
        screen.write(line)
    return stream.getvalue()


def test_columns_are_aligned_by_what_a_terminal_shows_and_nothing_trails() -> None:
    """maintenance OP-71."""
    lines = drawn(io.StringIO()).splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert len({cell_len(line) for line in lines}) == 1


def test_texts_stand_at_the_left_of_their_column_and_numbers_at_the_right() -> None:
    """maintenance OP-71."""
    stream = io.StringIO()
    screen = Screen(stream)
    columns = (COLUMNS[1], COLUMNS[2], COLUMNS[1])
    for line in screen.table(columns, [("", "long text", 7), ("", "x", 123_456)]):
        screen.write(line)
    assert stream.getvalue().splitlines() == [
        "TEXT        COUNT  TEXT",
        "long text       7  long text",
        "x          123456  x",
    ]


def test_without_a_terminal_everything_is_whole_and_plain() -> None:
    """maintenance OP-11, OP-71, OP-70."""
    said = drawn(io.StringIO())
    assert "東京 " * 40 in said
    assert "\x1b" not in said


def test_on_a_terminal_columns_are_cut_to_its_width_but_never_ids() -> None:
    """maintenance OP-11, OP-71."""
    lines = drawn(Terminal(), colour=False).splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert ITEMS[0][0] in lines[1]
    assert "…" in lines[2]


@with_each(
    ("width", "line"),
    [
        (43, "0123456789abcdef  a text of words  7 of 100"),
        (42, "0123456789abcdef  a text of wor…  7 of 100"),
        (40, "0123456789abcdef  a text of w…  7 of 100"),
        (39, "ID     0123456789abcdef"),
    ],
)
def test_a_column_is_cut_as_far_as_needed_and_no_shorter_than_twelve_places(
    monkeypatch: pytest.MonkeyPatch, width: int, line: str
) -> None:
    """maintenance OP-71: the widest one first; what just fits is whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen(stream := Terminal(), colour=False)
    count: Column[tuple[str, str, int]] = Column("COUNT", lambda item: f"{item[2]} of 100", right=True)
    for drawn in screen.table((*COLUMNS[:2], count), [("0123456789abcdef", "a text of words", 7)]):
        screen.write(drawn)
    assert stream.getvalue().splitlines()[1] == line


def test_a_terminal_too_narrow_for_the_ids_still_gets_them_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-71."""
    monkeypatch.setenv("COLUMNS", "20")
    assert ITEMS[0][0] in drawn(Terminal(), colour=False).splitlines()[1]


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-71."""
    assert "\x1b[" in drawn(Terminal())
    assert "\x1b" not in drawn(Terminal(), colour=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in drawn(Terminal())


def test_what_is_stored_cannot_steer_the_terminal() -> None:
    screen = Screen(stream := Terminal(), colour=False)
    screen.write("red \x1b[31m and\rover\u202e it [bold]not markup[/] :smile:\nsecond line")
    assert stream.getvalue() == "red \\x1b[31m and\\rover\\u202e it [bold]not markup[/] :smile:\nsecond line\n"


@with_each("code", [0x1B, 0x9B, 0x7F, 0x00, 0x85, 0x061C, 0x200F, 0x2028, 0x2029, 0x202E, 0x2069])
def test_no_text_of_any_make_steers_the_terminal(code: int) -> None:
    """maintenance OP-71: whichever part of a line it stands in."""
    screen = Screen(stream := Terminal(), colour=False)
    screen.write(Text.assemble(("a" + chr(code), "bold"), "b", (chr(code), "dim")))
    screen.write(screen.heading("h" + chr(code)))
    assert chr(code) not in stream.getvalue()
    assert json.loads(printable_json(json.dumps(chr(code), ensure_ascii=False))) == chr(code)


@with_each(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (Decimal("0.100000"), "0.1"),
        (Decimal("12.000000"), "12"),
        (datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC), "2026-02-03T12:34:56.789Z"),
        ({"at": datetime(2026, 2, 3, tzinfo=UTC)}, '{"at":"2026-02-03T00:00:00.000Z"}'),
        ("two\nlines", "two\\nlines"),
    ],
)
def test_values_are_one_line_each(value: Any, text: str) -> None:
    assert Screen(io.StringIO()).format_value(value) == text


def test_times_are_local_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-70."""
    moment = datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC)
    shown = Screen(io.StringIO(), local=True).format_value(moment)
    assert datetime.fromisoformat(shown) == moment
    assert not shown.endswith("Z")
