"""What listens to the engine of a store that has connections of its own, such as tracing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.backends.base import Backend
from lastlight_state.errors import StateError
from lastlight_state.workflows import Trigger


@pytest.fixture
def heard(every_backend: StateStore) -> list[tuple[str, str]]:
    """Return what listeners of the store's engine have heard: when, and of which statement."""
    told: list[tuple[str, str]] = []
    engine = every_backend.backend.engine

    def before(connection: Any, _cursor: Any, statement: Any, _parameters: Any, context: Any, _many: bool) -> None:
        context.begun = statement
        assert connection.engine is engine
        told.append(("before", str(statement)))

    def after(_connection: Any, _cursor: Any, statement: Any, _parameters: Any, context: Any, _many: bool) -> None:
        assert context.begun == statement
        told.append(("after", str(statement)))

    sa.event.listen(engine, "before_cursor_execute", before)
    sa.event.listen(engine, "after_cursor_execute", after)
    return told


def test_listeners_hear_the_statements_of_a_store_with_its_own_connections(
    every_backend: StateStore, heard: list[tuple[str, str]]
) -> None:
    """backends B-178: of calls, transactions, views, and from coroutines."""
    store = every_backend

    def tables(deed: Callable[[], object]) -> set[str]:
        heard.clear()
        deed()
        assert [when for when, _ in heard] == ["before", "after"] * (len(heard) // 2)
        return {name for name in ("workflow_runs", "run_events", "states") if any(name in text for _, text in heard)}

    def grouped() -> None:
        with store.transaction() as tx:
            tx.journal.events.append(run.id, "tick")
            tx.states.put("k", 1)

    def seen() -> None:
        with store.view() as view:
            view.workflows.runs.get(run.id)

    run = store.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
    assert "workflow_runs" in tables(lambda: store.workflows.runs.get(run.id))
    assert "run_events" in tables(lambda: store.journal.events.append(run.id, "tick"))
    assert {"run_events", "states"} <= tables(grouped)
    assert "workflow_runs" in tables(seen)
    assert "workflow_runs" in tables(lambda: asyncio.run(_awaited(store, run.id)))


async def _awaited(store: StateStore, run_id: str) -> None:
    await AsyncStateStore(store).workflows.runs.get(run_id)


def test_a_statement_that_fails_is_told_to_its_listeners(every_backend: StateStore) -> None:
    """backends B-178: with the driver's exception; what the library raises is its own."""
    failed: list[BaseException] = []
    sa.event.listen(every_backend.backend.engine, "handle_error", lambda told: failed.append(told.original_exception))
    sa.event.listen(every_backend.backend.engine, "before_cursor_execute", lambda *_: None, retval=False)
    with pytest.raises(StateError), every_backend.transaction() as tx:
        tx._context.scope.unit.control("THIS IS NO STATEMENT")  # type: ignore[attr-defined]
    assert [isinstance(error, every_backend.backend.driver_errors) for error in failed] == [True]


def test_nothing_is_in_the_way_until_somebody_asks_for_the_engine(every_backend: StateStore) -> None:
    """backends B-178: nor while nobody listens to it."""
    backend: Backend = every_backend.backend
    run = every_backend.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
    assert backend.tells is None
    assert backend.engine is backend.engine
    with every_backend.view() as view:
        checkout = view._context.scope.unit  # type: ignore[attr-defined]
        assert checkout.execute == checkout.driver.execute
        assert view.workflows.runs.get(run.id) == run


def test_the_engine_of_a_store_names_its_database(every_backend: StateStore) -> None:
    """backends B-178: so that tracing can say which one it is."""
    assert every_backend.backend.engine.name == every_backend.backend.name
    assert every_backend.backend.engine.url.database
