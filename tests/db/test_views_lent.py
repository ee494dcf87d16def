"""``view.connection``: a caller's statements and sessions read the moment that a view reads, and write nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, selectinload
from support.callers import engine_on

from lastlight_state import AsyncStateStore, StateStore, View
from lastlight_state.backends.base import Mode
from lastlight_state.errors import MisuseError
from lastlight_state.models import WorkflowRunModel
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

RUNS = sa.select(WorkflowRunModel).options(selectinload(WorkflowRunModel.transitions))


@pytest.fixture(params=["own connections", "engine="])
def store(database: Database, request: pytest.FixtureRequest) -> Iterator[StateStore]:
    """A store on connections of its own, and on a caller's engine."""
    engine = engine_on(database) if request.param == "engine=" else None
    yield database.open(engine=engine)
    database.close()
    if engine is not None:
        engine.dispose()


def create(store: StateStore) -> str:
    return store.workflows.runs.create("ship", trigger=Trigger("t"), phase="p").id


def read(view: View) -> list[int]:
    """How many transitions each run has."""
    with Session(bind=view.connection) as session:
        return [len(run.transitions) for run in session.scalars(RUNS)]


def fail(view: View) -> None:
    raise ZeroDivisionError(read(view))


def test_a_session_reads_the_moment_of_the_view(store: StateStore) -> None:
    """backends B-140: what is committed meanwhile stays unseen, by the view's own calls too."""
    create(store)
    with store.view() as view:
        assert read(view) == [1]
        with StateStore.open(store.settings.url, migrate=False) as other:
            create(other)
        assert read(view) == [1]
        assert len(view.workflows.runs.list()) == 1
    with store.view() as view:
        assert read(view) == [1, 1]


def test_the_database_refuses_to_write_through_it(store: StateStore) -> None:
    """backends B-140: and the connection writes again for whoever has it next."""
    create(store)
    statement = sa.text("UPDATE workflow_overrides SET enabled = enabled")
    with store.view() as view, Session(bind=view.connection) as session, pytest.raises(DBAPIError, match=r"read.?only"):
        session.execute(statement)
    for _ in range(8):
        create(store)
        with store.transaction() as tx:
            tx.connection.execute(statement)


def test_a_session_that_ends_leaves_the_view_open_and_one_that_rolls_back_ends_it(store: StateStore) -> None:
    """backends B-140: the block ends well in both cases."""
    create(store)
    with store.view() as view:
        with Session(bind=view.connection) as session, session.begin():
            assert len(session.scalars(RUNS).all()) == 1
        assert len(view.workflows.runs.list()) == 1
        with Session(bind=view.connection) as session:
            session.scalars(RUNS).all()
            session.rollback()
        with pytest.raises(MisuseError, match="rolled back"):
            view.workflows.runs.list()
    create(store)


def test_the_connection_is_over_with_the_view(store: StateStore) -> None:
    """backends B-140."""
    with store.view() as view:
        connection = view.connection
    with pytest.raises(MisuseError, match="has ended"):
        connection.execute(sa.text("SELECT 1"))


def test_a_database_in_memory_writes_again_after_a_view() -> None:
    """backends B-140: readers and the writer share its one connection."""
    with StateStore.open(":memory:") as store:
        create(store)
        with store.view() as view:
            assert read(view) == [1]
        create(store)
        with pytest.raises(ZeroDivisionError), store.view() as view:
            fail(view)
        create(store)


def test_a_view_that_was_cut_off_leaves_a_database_in_memory_that_writes() -> None:
    """backends B-140: whoever comes next makes the connection what it was."""
    with StateStore.open(":memory:") as store:
        checkout = store.backend.acquire(Mode.SNAPSHOT)
        store.backend.connection(checkout).execute(sa.text("SELECT 1"))
        store.backend.recover(checkout)
        create(store)


def test_a_coroutine_gives_a_view_a_function(database: Database) -> None:
    """backends B-141: as it gives one to a transaction, on the thread where it lives."""

    async def main() -> list[int]:
        async with await AsyncStateStore.open(database.url) as store:
            await store.workflows.runs.create("ship", trigger=Trigger("t"), phase="p")
            async with store.view() as view:
                return await view.run(read)

    assert asyncio.run(main()) == [1]
