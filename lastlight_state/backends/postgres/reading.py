"""Rows of a cursor, past values that the driver cannot load, such as the time ``infinity``.

A result stays with its cursor, so the rows can be loaded once more, each value by itself.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from lastlight_state.backends.cells import Unreadable


def fetched(cursor: psycopg.Cursor[Any]) -> list[Any]:
    """All rows. A value that the driver cannot load is `Unreadable`; errors of the server are raised."""
    try:
        return cursor.fetchall()
    except psycopg.Error as error:
        if error.sqlstate is not None or not isinstance(error, psycopg.DataError):
            raise
    except ValueError:  # of the JSON parser
        pass
    return _by_value(cursor)


def _by_value(cursor: psycopg.Cursor[Any]) -> list[Any]:
    result = cursor.pgresult
    if result is None:
        return []
    loading = Transformer(cursor)
    loaders = [loading.get_loader(result.ftype(i), Format(result.fformat(i))) for i in range(result.nfields)]
    return [
        tuple(_loaded(loader, result.get_value(row, i)) for i, loader in enumerate(loaders))
        for row in range(result.ntuples)
    ]


def _loaded(loader: Any, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return loader.load(data)
    except (psycopg.Error, ValueError):
        return Unreadable(bytes(data))
