"""How many statements a call sends: on a link that is slow each of them is waited for."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.pq import Format
from sqlalchemy import create_engine
from support.checkpoints.steps import content, step, texts, write

from lastlight_state.checkpoints import NewCheckpoint, NewWrite
from lastlight_state.testing import Database, racing


@pytest.mark.plain_postgres("counts statements, and a chain is two there")
def test_a_few_writes_of_a_task_are_one_statement_on_postgres(postgres_database: Database) -> None:
    """checkpoints CK-61: with the change of the thread, and without a transaction around it."""
    store = postgres_database.open()
    store.checkpoints.put("t", step(1))
    with racing(store) as race:
        store.checkpoints.put_writes("t", "step-1", "task", [write(0, "a"), write(1, "b")])
        assert len(race.statements) == 1


def test_a_checkpoint_with_a_few_new_values_is_three_statements_on_postgres(postgres_database: Database) -> None:
    """checkpoints CK-61: the thread, what there is of the channels, and what is stored, whatever was there before."""
    store = postgres_database.open()
    for number in range(1, 6):
        values = {f"channel {at}": f"{number} {at}" for at in range(4)}
        with racing(store) as race:
            store.checkpoints.put("t", step(number, values))
            assert len(race.statements) == 3


def test_rows_with_bytes_come_in_binary(postgres_database: Database) -> None:
    """checkpoints CK-62: and others as text, over a connection of the caller's, too."""
    formats = []

    class Noting(psycopg.Cursor[Any]):
        def fetchall(self) -> list[Any]:
            formats.append(self.format)
            return super().fetchall()

    engine = create_engine(postgres_database.url, connect_args={"cursor_factory": Noting})
    with postgres_database.open(engine=engine) as store:
        stored = store.checkpoints.put("t", step(1, {"a": "\0 value"}, metadata={"n": [2**53 + 1, None, "\U0001f600"]}))
        formats.clear()
        found = store.checkpoints.get("t")
        assert (formats, texts(found)) == ([Format.BINARY], {"a": "\0 value"})
        assert (found.created_at, found.metadata) == (stored.created_at, stored.metadata)
        store.checkpoints.thread("t")
        assert formats == [Format.BINARY, Format.TEXT]
    engine.dispose()


def test_many_new_values_and_few_are_stored_alike(database: Database) -> None:
    """checkpoints CK-61: a checkpoint that is put again is replaced, whatever its number of values."""
    c = database.open().checkpoints
    for number in (1, 3, 4, 5, 9):
        for text in ("first", "second"):
            values = {f"channel {at}": content(f"{text} {at}") for at in range(number)}
            versions = dict.fromkeys(values, f"{text}-{number}")
            new = NewCheckpoint(f"step-{number}", content(text), versions, values)
            assert c.put("t", new) == c.list("t").items[0]
            assert c.get("t", f"step-{number}").values == values
        assert c.get("t", f"step-{number}").content == content("second")


def test_many_writes_and_few_are_stored_alike(database: Database) -> None:
    """checkpoints CK-61: the first of a place stays, or is replaced, whatever there is beside it."""
    store = database.open()
    c = store.checkpoints
    c.put("t", step(1))
    for number in (1, 4, 5, 9):
        task = f"task-{number}"

        def writes(text: str, number: int = number) -> list[NewWrite]:
            return [write(at, f"{text} {at}") for at in range(number)]

        c.put_writes("t", "step-1", task, writes("first"))
        c.put_writes("t", "step-1", task, writes("second"))
        assert [one.content.data for one in c.get("t").writes if one.task == task] == [
            one.content.data for one in writes("first")
        ]
        c.put_writes("t", "step-1", task, writes("third"), on_conflict="replace")
        assert [one.content.data for one in c.get("t").writes if one.task == task] == [
            one.content.data for one in writes("third")
        ]
