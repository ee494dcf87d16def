"""Cells of the third original system's rows: JSON that is decoded, and what stands in columns without a field here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.foreign import Row
from lastlight_state.maintenance.imports.lenient import decoded, with_text

#: How columns that hold JSON are called, beside those that end so.
_JSON = {"metadata", "node_metadata", "content", "payload"}
_JSON_SUFFIXES = ("_json", "_refs")


class Cells:
    """Reads the cells of one session, and counts in ``noticed`` what has no place here.

    With ``lenient``, a cell that holds no JSON is kept as text.
    """

    def __init__(self, *, lenient: bool) -> None:
        self.noticed: Counter[str] = Counter()
        self._adapts = self.noticed if lenient else None

    def json(self, where: str, row: Row, column: str, texts: Row) -> Any:
        """Return the value of a JSON column, None for NULL. A text that is kept goes to ``texts``."""
        if row.get(column) is None:
            return None
        try:
            return decoded(f"{where}.{column}", row[column], self._adapts)
        except InvalidValue:
            if self._adapts is None:
                raise
            texts.update(with_text(texts, column, row[column], self._adapts))
            return None

    def rest(self, where: str, row: Row, placed: Collection[str], texts: Row) -> Row:
        """Return the ``extra`` of a row: ``texts``, and the columns that are not among ``placed``, under `SOURCE`."""
        found = {name: self._plain(where, row, name, texts) for name in row if name not in placed}
        told = {name: value for name, value in found.items() if value is not None}
        return {**texts, **({SOURCE: told} if told else {})}

    def _plain(self, where: str, row: Row, name: str, texts: Row) -> Any:
        is_json = name in _JSON or name.endswith(_JSON_SUFFIXES)
        return self.json(where, row, name, texts) if is_json and isinstance(row[name], str) else row[name]
