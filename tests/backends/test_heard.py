"""Listeners of a caller's engine hear what the library executes on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from support.callers import engine_on

from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


class Heard:
    """A listener as tools of tracing are: it keeps something in the context of a statement until it has ended."""

    def __init__(self, engine: sa.Engine) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.failed: list[str] = []
        self.errors: list[BaseException | None] = []
        self.engine = engine
        self._events = (
            ("before_cursor_execute", self._before),
            ("after_cursor_execute", self._after),
            ("handle_error", self._error),
        )
        for name, listener in self._events:
            sa.event.listen(engine, name, listener)

    def stop(self) -> None:
        for name, listener in self._events:
            sa.event.remove(self.engine, name, listener)

    def _before(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        assert (connection.engine.url, many) == (self.engine.url, False)
        assert hasattr(cursor, "execute")
        context._span = statement
        self.begun.append(statement)

    def _after(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        assert context._span == statement
        self.ended.append(statement)

    def _error(self, failed: Any) -> None:
        self.failed.append(failed.execution_context._span)
        self.errors.append(failed.original_exception)


@pytest.fixture
def engine(database: Database) -> Iterator[sa.Engine]:
    """Give an engine of the caller's."""
    made = engine_on(database)
    yield made
    database.close()
    made.dispose()


def create(store: Any, key: str = "k") -> Any:
    return store.workflows.runs.create("ship", trigger=Trigger(key, type="cli"), phase="p")


def inserts(texts: list[str]) -> int:
    return sum("INSERT INTO workflow_runs" in text for text in texts)


def test_units_on_a_callers_engine_are_heard(database: Database, engine: sa.Engine) -> None:
    """backends B-142: also those of a store that was opened before, and no more once nobody listens."""
    store = database.open(engine=engine)
    run = create(store)
    heard = Heard(engine)
    create(store)
    store.workflows.runs.get(run.id)
    assert inserts(heard.begun) == 1
    assert any(text.startswith("SELECT") for text in heard.begun)
    assert (heard.begun, heard.failed) == (heard.ended, [])
    heard.stop()
    count = len(heard.begun)
    create(store)
    assert len(heard.begun) == count


def test_joined_blocks_are_heard(database: Database, engine: sa.Engine) -> None:
    """backends B-142: whatever connections the store has itself."""
    store, heard = database.open(), Heard(engine)
    create(store)
    assert heard.begun == []
    with Session(engine) as session, session.begin(), store.transaction(connection=session) as tx:
        create(tx)
    assert inserts(heard.begun) == inserts(heard.ended) == 1


def test_blocks_that_joined_an_asynchronous_session_are_heard(database: Database) -> None:
    """backends B-142: by the listeners of its ``sync_engine``."""

    async def main() -> None:
        url = f"sqlite+aiosqlite:///{database.url}" if database.name == "sqlite" else database.url
        engine = create_async_engine(url)
        heard = Heard(engine.sync_engine)
        store = await AsyncStateStore.open(database.url)
        async with AsyncSession(engine) as session, session.begin(), store.transaction(connection=session) as tx:
            await create(tx)
        await store.close()
        assert inserts(heard.begun) == inserts(heard.ended) == 1
        await engine.dispose()

    asyncio.run(main())


def test_a_statement_that_fails_is_told_with_its_error(database: Database, engine: sa.Engine) -> None:
    """backends B-143: and the call raises what it raises without listeners, whatever they raise."""
    store, heard = database.open(engine=engine), Heard(engine)
    sa.event.listen(engine, "handle_error", lambda _: 1 / 0)
    with pytest.raises(Conflict), store.transaction() as tx:
        tx._scope.unit.control("INSERT INTO workflow_overrides (name) VALUES ('w')")
    [failed], [error] = heard.failed, heard.errors
    assert isinstance(error, store.backend.driver_errors)
    assert failed.startswith("INSERT INTO workflow_overrides")
    assert failed not in heard.ended


def test_a_listener_may_change_a_statement(database: Database, engine: sa.Engine) -> None:
    """backends B-143: with ``retval=True``, as comments for the database's own log are added."""
    store = database.open(engine=engine)
    seen: list[str] = []

    def commented(*given: Any) -> tuple[str, Any]:
        return f"{given[2]} /* ours */", given[3]

    sa.event.listen(engine, "before_cursor_execute", commented, retval=True)
    sa.event.listen(engine, "after_cursor_execute", lambda *given: seen.append(given[2]))
    run = create(store)
    assert store.workflows.runs.get(run.id) == run
    assert all(text.endswith("/* ours */") for text in seen)


def test_a_connection_on_which_nobody_listens_executes_by_itself(database: Database, engine: sa.Engine) -> None:
    """backends B-142: nothing stands between a unit and the driver."""
    store = database.open(engine=engine)
    executes: list[Any] = []
    store._scope.read(lambda unit: executes.append(unit.execute))
    Heard(engine)
    store._scope.read(lambda unit: executes.append(unit.execute))
    assert [getattr(execute, "__name__", "") for execute in executes] == ["execute", "execute_and_tell"]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_joined_blocks_are_logged(
    level: int, database: Database, engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-132: each at DEBUG, and slow ones as the setting says."""
    settings = Settings(slow_statement=1e-9) if level == logging.WARNING else Settings()
    store: StateStore = database.open(settings=settings)
    caplog.set_level(level, "lastlight_state.statements")
    with engine.begin() as connection, store.transaction(connection=connection) as tx:
        create(tx)
    assert inserts(caplog.messages) == 1
