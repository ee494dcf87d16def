"""What lists show of long texts and of large JSON, as an index can hold it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Text, case, cast, func, literal_column

from lastlight_state.db.indexes import beginning

#: How many characters of a long text lists show.
PREVIEW = 500
#: Inboxes show JSON that has no more characters.
SHORT = 2_000


def preview(column: ColumnElement[str]) -> ColumnElement[str]:
    """The beginning of a text, as an index can hold it."""
    return beginning(column, PREVIEW)


def short(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """JSON if it is short, else NULL, as an index can hold it."""
    return case((func.length(cast(column, Text)) <= literal_column(str(SHORT)), column))
