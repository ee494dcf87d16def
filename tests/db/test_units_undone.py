"""What a failed or doubtful unit leaves behind: nothing half done, and nothing told twice or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from support.between import before
from support.each import with_each
from support.scratch import THINGS, scratch_tables

from lastlight_state import BackendBusy, BackendUnavailable, CorruptData, InvalidValue, StateError, StateStore
from lastlight_state.backends import waiting
from lastlight_state.backends.base import Options
from lastlight_state.backends.postgres import PostgresBackend
from lastlight_state.backends.sqlite import pragmas
from lastlight_state.backends.urls import parse
from lastlight_state.backends.waiting import Retry
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.messaging import ConversationKey
from lastlight_state.metrics import Metrics
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger

AT = datetime(2026, 2, 3, tzinfo=UTC)
INSERT = statement_of(sa.insert(THINGS).values({name: bind(name, THINGS.c[name]) for name in ("id", "at", "kind")}))
IDS = statement_of(sa.select(THINGS.c.id))
EMPTY = statement_of(sa.delete(THINGS))


def test_a_call_of_one_statement_that_fails_inside_a_transaction_is_undone(sqlite_database: Database) -> None:
    """backends B-41: a failed call undoes itself, also where its answer, not its statement, was what failed."""
    store = sqlite_database.open()
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1")).session
    sqlite_database.raw().execute("UPDATE messaging_sessions SET metadata = 'no JSON'")
    with store.transaction() as tx, pytest.raises(CorruptData):
        tx.messaging.sessions.close(session.id)
    assert sqlite_database.raw().execute("SELECT active FROM messaging_sessions").fetchone() == (1,)


def test_hooks_of_a_unit_whose_commit_was_in_doubt_run_once_when_it_turns_out_done(every_backend: StateStore) -> None:
    """workflows W-19: exactly once, also when the answer to COMMIT was lost and the repetition finds the work done."""
    scope, told, attempts = every_backend._scope, [], []
    commit = scope.backend.commit

    def commit_and_lose_the_answer(checkout: Any) -> None:
        commit(checkout)
        scope.backend.commit = commit  # type: ignore[method-assign]
        raise BackendUnavailable("the connection was lost", outcome="unknown", repeats=1)

    def work(unit: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            unit.after_commit(lambda: told.append("told"))

    scope.backend.commit = commit_and_lose_the_answer  # type: ignore[method-assign]
    scope.write(work, repeatable=True)
    assert (len(attempts), told) == (2, ["told"])


@pytest.mark.parametrize("raised", [InvalidValue("n", "bad"), KeyboardInterrupt()], ids=["bad value", "from outside"])
def test_what_is_raised_while_the_rows_of_a_batch_are_made_leaves_none_of_them(
    scratch: StateStore, raised: BaseException
) -> None:
    """backends B-64: alone and in a block. On Postgres some rows are on their way by then; the next batch is stored."""

    def rows(many: int) -> Iterator[dict[str, Any]]:
        yield from ({"id": f"t{n:03}", "at": AT, "kind": "x" * 1000} for n in range(many))
        if many > 1:
            raise raised

    def store_some(scope: Scope) -> None:
        with pytest.raises(type(raised)):
            scope.write(lambda unit: unit.insert(THINGS, INSERT, rows(500)))
        scope.write(lambda unit: unit.insert(THINGS, INSERT, rows(1)))
        assert [row["id"] for row in scope.read(lambda unit: unit.rows(IDS))] == ["t000"]
        scope.write(lambda unit: unit.change(EMPTY))

    store_some(scratch._scope)
    with scratch.transaction() as tx:
        store_some(tx._context.scope)


@pytest.mark.parametrize(
    ("beginning", "work"),
    [("DELETE", lambda unit: unit.change(EMPTY)), ("SELECT", lambda unit: unit.rows(IDS))],
    ids=["change", "look"],
)
def test_a_connection_whose_statement_was_cut_off_is_used_no_more(
    scratch: StateStore, beginning: str, work: Callable[[Unit], object]
) -> None:
    """backends B-87: it may be in the middle of that statement."""
    used: list[Any] = []

    def cut_off(unit: Unit) -> None:
        used.append(unit.driver)
        work(unit)

    with racing(scratch) as race:
        race.before(beginning, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            scratch._scope.write(cut_off)
    scratch._scope.write(cut_off)
    assert used[0] is not used[1]


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_an_error_that_has_done_its_waiting_is_not_repeated() -> None:
    """backends B-53: at most a minute in the writers' queue, not seven."""
    attempts = []

    def attempt() -> None:
        attempts.append(1)
        raise BackendBusy("waited too long", final=True)

    with pytest.raises(BackendBusy):
        Retry(Metrics(), sleep=lambda _: None).run(attempt)
    assert len(attempts) == 1


def test_scratch_gives_back_the_same_numbers_on_both_databases(store: StateStore) -> None:
    """house H-32: both backends give back equal values, large whole floats included."""
    run = store.workflows.runs.create("w", trigger=Trigger("t"), phase="p", scratch={"large": 2.0**60, "deep": [1e16]})
    store.workflows.runs.merge_scratch(run.id, {"more": 2.0**60})
    assert store.workflows.runs.get(run.id).scratch == {"large": 2**60, "deep": [10**16], "more": 2**60}


@with_each("name", ["statement_timeout", "lock_timeout"])
def test_a_timeout_that_a_pooler_would_drop_is_refused(name: str) -> None:
    timeout: dict[str, Any] = {name: 3.0}
    with pytest.raises(InvalidValue, match=name):
        PostgresBackend(parse("postgresql://localhost/x"), Options(pooler="transaction", **timeout))


def test_a_statement_of_its_own_that_waited_for_a_lock_is_done_or_fails_as_ever(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-20: a writer waits in pieces; what it meets at the end of the wait is told as it is."""
    monkeypatch.setattr(pragmas, "PIECE_SECONDS", 0.01)
    store = sqlite_database.open()
    holder = sqlite_database.raw()

    def after_a_wait(*ending: str) -> int:
        def end() -> None:
            for statement in ending:
                holder.execute(statement)

        holder.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as while_it_waits:
            happened = before(while_it_waits, waiting, "pause", end)
            try:
                return store._scope.one_statement(lambda unit: unit.change(EMPTY))
            finally:
                assert happened

    with scratch_tables(store):
        store._scope.write(lambda unit: unit.insert(THINGS, INSERT, [{"id": "t", "at": AT, "kind": "x"}]))
        assert after_a_wait("ROLLBACK") == 1
        with pytest.raises(StateError, match="no such table"):
            after_a_wait("DROP TABLE scratch_notes", "DROP TABLE scratch_things", "COMMIT")
    assert store.metrics.retries == 0
