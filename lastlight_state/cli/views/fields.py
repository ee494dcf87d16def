"""One record: its fields, and below them the texts that do not fit beside their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastlight_state import codec
from lastlight_state.cli.screen import Screen
from lastlight_state.plain import plain

#: Characters of a text that are shown unless all are wanted.
SHORT = 200


def lines(record: Any, screen: Screen, *, full: bool, more: Mapping[str, str]) -> Iterator[Any]:
    """The lines of a record and of the texts that come with it. ``full`` shows long texts whole, and empty fields."""
    values = {name: getattr(record, name) for name in type(record).model_fields}
    long = {name: text for name, value in values.items() if (text := _long(value))}
    shown = {name: value for name, value in values.items() if name not in long and (full or value is not None)}
    yield from screen.fields(shown)
    for name, text in {**long, **more}.items():
        yield from _text(name, text, screen, full)


def _long(value: Any) -> str | None:
    """The text of a value that does not fit beside its name."""
    if isinstance(value, str):
        return value if len(value) > SHORT or "\n" in value else None
    if isinstance(value, dict | list):
        text = codec.encode_sound(plain(value), indented=True).decode()
        return text if len(text) > SHORT else None
    return None


def _text(name: str, text: str, screen: Screen, full: bool) -> Iterator[Any]:
    yield ""
    yield screen.heading(name)
    if full or len(text) <= SHORT:
        yield text
        return
    yield f"{text[:SHORT]}…"
    yield f"[{len(text):,} characters; --full shows all]"
