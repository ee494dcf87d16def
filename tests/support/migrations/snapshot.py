"""Comparing catalogues: what differs between two, and what the second has lost of the first."""

from __future__ import annotations

import re

from lastlight_state.backends.facts import Catalogue, Entry

#: How a catalogue of Postgres tells the room that pages of a table have.
_ROOM = re.compile(r" \{fillfactor=\d+\}$")


def differences(found: Catalogue, expected: Catalogue) -> list[str]:
    """One line per entry that is missing, unexpected or different; empty when the schemas are the same."""
    return [
        f"{_name(entry)}: expected {expected.get(entry)!r}, found {found.get(entry)!r}"
        for entry in sorted(found.keys() | expected.keys())
        if found.get(entry) != expected.get(entry)
    ]


def lost(before: Catalogue, after: Catalogue) -> list[str]:
    """One line per entry of the first that the second lacks or has otherwise.

    Columns added behind are no loss, nor is room that the pages of a table get.
    """
    return [
        f"{_name(entry)}: was {definition!r}, is {after.get(entry)!r}"
        for entry, definition in sorted(before.items())
        if not _kept(entry, definition, after.get(entry))
    ]


def _kept(entry: Entry, before: str, after: str | None) -> bool:
    if entry[0] == "order" and after is not None:
        return f"{after}, ".startswith(f"{before}, ")
    if entry[0] == "table" and after is not None:
        return before in (after, _ROOM.sub("", after))
    return after == before


def _name(entry: Entry) -> str:
    return " ".join(part for part in entry if part)
