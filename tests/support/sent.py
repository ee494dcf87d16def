"""The statements that reach a driver, as it gets them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import create_engine

from lastlight_state.store import StateStore
from lastlight_state.testing.databases import Database


class Sent(list[str]):
    """What was sent since the last `clear`, in order, without pragmas."""

    def __init__(self) -> None:
        super().__init__()
        self._acts: list[tuple[str | tuple[str, ...], Callable[[], object]]] = []

    def before(self, beginning: str | tuple[str, ...], act: Callable[[], object]) -> None:
        """Let ``act`` happen once, just before the next statement that begins so is sent."""
        self._acts.append((beginning, act))

    def note(self, sql: Any) -> None:
        """What a driver is about to send."""
        text = str(sql)
        if not text.startswith("PRAGMA"):
            self.append(text)
        for planned in [planned for planned in self._acts if text.startswith(planned[0])]:
            self._acts.remove(planned)
            planned[1]()


@contextmanager
def recorded(database: Database) -> Iterator[tuple[StateStore, Sent]]:
    """A store on the database whose driver connections record what they are given."""
    sent = Sent()

    class RecordingConnection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            sent.note(sql)
            return super().execute(sql, parameters)

    class RecordingCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            sent.note(query)
            return super().execute(query, *args, **options)

    if database.name == "sqlite":
        engine = create_engine(f"sqlite:///{database.url}", connect_args={"factory": RecordingConnection})
    else:
        engine = create_engine(database.url, connect_args={"cursor_factory": RecordingCursor})
    with database.open(engine=engine) as store:
        yield store, sent
    engine.dispose()
