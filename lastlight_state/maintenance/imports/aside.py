"""What stands beside the columns of a row: columns of the source without a place, and what a lenient import adapts.

Under `SOURCE` stand the columns without a place, under `ADAPTED` the texts of fields that are empty, and under
`ESCAPED` the names of fields that must have a text: there each character that no database holds is an escape such as
``\\u0000`` or ``\\ud800``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.lenient import ADAPTED, as_text

Row = dict[str, Any]

#: Where the names of fields stand whose text has escapes, and how many of them are named.
ESCAPED, NAMED = "escaped", 100


class Aside:
    """Collects what stands beside the columns of one row. ``noticed`` counts what was adapted.

    Without ``lenient`` nothing is adapted.
    """

    def __init__(self, noticed: Counter[str], *, lenient: bool) -> None:
        self.noticed = noticed
        self.lenient = lenient
        self.others: Row = {}
        self.texts: dict[str, str] = {}
        self.escaped: list[str] = []

    def instead(self, name: str, value: Any, check: Callable[[Any], Any], *, may_be_empty: bool) -> Any:
        """Return what is stored in place of a refused value: None if it may be empty, else its text with escapes.

        Raises what ``check`` raises where neither will do.
        """
        text = as_text(value)
        if may_be_empty:
            self.texts[name] = text
            found = None
        else:
            found = check(text)
            self.escaped.append(name)
        self.noticed[ADAPTED] += 1
        return found

    def keep(self, row: Row, placed: Collection[str]) -> None:
        """Keep the columns that are not ``placed``: what holds an object or a list as JSON is kept as that."""
        for name, value in row.items():
            if name in placed or value is None:
                continue
            found = plain(value)
            try:
                codec.encode_bytes(name, found)
            except InvalidValue:
                if not self.lenient:
                    raise
                self.instead(name, value, lambda text: text, may_be_empty=True)
            else:
                self.others[name] = found

    def told(self, where: str, place: Any, max_bytes: int) -> Any:
        """Return the value of the column that has room for all this, with it.

        What has no room is counted by column: in a ``place`` that is no object, and past its size.
        """
        said: Row = {}
        if self.others:
            said[SOURCE] = self.others
        if self.texts:
            said[ADAPTED] = self.texts
        if self.escaped:
            said[ESCAPED] = self.escaped[:NAMED]
        if not said:
            return place
        whole = {**place, **said} if isinstance(place, dict) else said
        if place is None or isinstance(place, dict):
            try:
                codec.encode(where, whole, max_bytes=max_bytes)
            except InvalidValue:
                pass
            else:
                return whole
        if self.texts:
            raise InvalidValue(where, "has no room for the texts of values that are refused")
        self.leave()
        return place

    def leave(self) -> None:
        """Count the columns that have no place anywhere."""
        for name in self.others:
            self.noticed[f"{name}_left"] += 1


def plain(value: Any) -> Any:
    """Return the value of a column that holds an object or a list as JSON, and any other value as it is."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return codec.decode(value)
        except ValueError:
            return value
    return value
