"""Rows of a cursor, past text that is no UTF-8.

The driver stays on a row whose text it cannot decode, so the same row can be read once more with a ``text_factory``
that decodes what it can. By default texts are read as usual: a factory in Python would be called for each of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from lastlight_state.backends.cells import Unreadable


def fetched(cursor: sqlite3.Cursor) -> list[Any]:
    """All rows. A text that is no UTF-8 is `Unreadable`; other errors of the driver are raised."""
    rows: list[Any] = []
    try:
        rows.extend(cursor)  # keeps the rows before an error, which fetchall() drops
    except sqlite3.OperationalError as error:
        rows.extend(_rest(cursor, error))
    return rows


def each(cursor: sqlite3.Cursor) -> Iterator[Any]:
    """The rows as `fetched` gives them, one by one."""
    try:
        yield from cursor
    except sqlite3.OperationalError as error:
        yield from _rest(cursor, error)


def _rest(cursor: sqlite3.Cursor, error: sqlite3.OperationalError) -> Iterator[Any]:
    """The rows from the one on that the decoder refused. Raises the error if the database said it."""
    if getattr(error, "sqlite_errorcode", None) is not None:
        raise error
    connection = cursor.connection
    usual, connection.text_factory = connection.text_factory, _text_or_unreadable
    try:
        yield from cursor
    finally:
        connection.text_factory = usual


def _text_or_unreadable(data: bytes) -> str | Unreadable:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Unreadable(data)
