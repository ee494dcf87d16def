"""Where statements run, and what surrounds them."""

from typing import Any

import pytest
import sqlalchemy as sa
from support.scratch import THINGS, scratch_tables
from support.sent import Sent, recorded

from lastlight_state import StateStore
from lastlight_state.backends.base import Checkout
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendUnavailable, Conflict, NestedTransaction
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

c = THINGS.c
INSERT = statement_of(
    sa.insert(THINGS).values(id=sa.bindparam("id"), at=sa.literal_column("'2026-02-03T00:00:00.000Z'", c.at.type))
)
COUNT = statement_of(sa.select(sa.func.count()).select_from(THINGS))


def kinds(sent: Sent) -> list[str]:
    """The first words of what was sent, which are then forgotten."""
    found = [text.split()[0] for text in sent]
    sent.clear()
    return found


def count(unit: Unit) -> int:
    return int(unit.value(COUNT))


def test_each_way_of_running_sends_what_it_says(database: Database) -> None:
    """backends B-36: a single read or write is one round trip."""
    with recorded(database) as (store, sent), scratch_tables(store):
        scope = store._scope
        sent.clear()
        scope.read(count)
        assert kinds(sent) == ["SELECT"]
        scope.one_statement(lambda unit: unit.change(INSERT, {"id": "a"}))
        assert kinds(sent) == ["INSERT"]
        scope.view(count)
        assert kinds(sent) == ["BEGIN", "SELECT", "COMMIT"]
        scope.write(lambda unit: (count(unit), unit.change(INSERT, {"id": "b"})))
        assert kinds(sent) == ["BEGIN", "SELECT", "INSERT", "COMMIT"]


def test_writing_units_of_sqlite_take_their_lock_at_once(sqlite_database: Database) -> None:
    """backends B-21: ``BEGIN IMMEDIATE``, never upgraded; reading ones are deferred."""
    with recorded(sqlite_database) as (store, sent), scratch_tables(store):
        sent.clear()
        store._scope.write(count)
        assert sent[0] == "BEGIN IMMEDIATE"
        sent.clear()
        store._scope.view(count)
        assert sent[0] == "BEGIN DEFERRED"


def test_hot_calls_of_a_domain_are_one_round_trip_where_one_statement_suffices(postgres_database: Database) -> None:
    """backends B-36."""
    with recorded(postgres_database) as (store, sent):
        runs = store.workflows.runs
        sent.clear()
        run = runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p")
        assert len(kinds(sent)) == 1
        runs.get(run.id)
        assert kinds(sent) == ["SELECT"]
        runs.set_trace(run.id, trace_id="t", span_id="s")
        assert kinds(sent) == ["UPDATE"]


def fail_after(unit: Unit) -> None:
    unit.change(INSERT, {"id": "undone"})
    unit.after_commit(lambda: pytest.fail("a hook of a call that failed"))
    raise Conflict("after its first statement")


def test_a_call_that_fails_inside_a_block_takes_its_hooks_along(scratch: StateStore) -> None:
    """backends B-41: never after a rollback."""
    ran: list[str] = []
    with scratch.transaction() as tx:
        scope = tx.workflows.runs._scope
        scope.write(lambda unit: unit.after_commit(lambda: ran.append("kept")))
        with pytest.raises(Conflict):
            scope.write(fail_after)
        assert scope.read(count) == 0
    assert ran == ["kept"]
    assert scratch._scope.read(count) == 0


def test_a_unit_that_fails_leaves_nothing_and_runs_no_hook(scratch: StateStore) -> None:
    """backends B-40."""
    with pytest.raises(Conflict):
        scratch._scope.write(fail_after)
    assert scratch._scope.read(count) == 0


def test_a_hook_runs_although_two_answers_of_its_commit_were_lost(
    scratch: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-47: the attempts after the first find the work done, and have no hook of their own."""
    commit, is_lost, is_first = scratch.backend.commit, iter((True, True, False)), iter((True, False, False))
    ran: list[str] = []

    def lose(unit: Checkout) -> None:
        commit(unit)
        if next(is_lost):
            raise BackendUnavailable("the answer was lost", outcome="unknown", repeats=2)

    def work(unit: Unit) -> None:
        if next(is_first):
            unit.after_commit(lambda: ran.append("hook"))

    monkeypatch.setattr(scratch.backend, "commit", lose)
    scratch._scope.write(work, repeatable=True)
    assert ran == ["hook"]


def test_callers_that_wait_hear_of_a_commit_of_unknown_outcome(
    scratch: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-47: it may have taken place, also where threads share commits."""

    def lose(unit: Checkout) -> None:
        raise BackendUnavailable("the answer was lost", outcome="unknown", repeats=0)

    told: list[bool] = []
    scratch._scope.after_commits.append(lambda: told.append(True))
    monkeypatch.setattr(scratch.backend, "commit", lose)
    with pytest.raises(BackendUnavailable):
        scratch._scope.write(lambda unit: unit.change(INSERT, {"id": "a"}))
    assert told == [True]


def test_a_named_lock_keeps_units_of_the_same_name_apart_and_ends_with_them(scratch: StateStore) -> None:
    """backends B-48: transaction-scoped named lock."""

    def work(unit: Unit) -> int:
        unit.named_lock("name")
        unit.named_lock("name")
        return count(unit)

    assert [scratch._scope.write(work) for _ in range(2)] == [0, 0]


def test_values_of_a_unit_are_told_apart_from_nothing(scratch: StateStore) -> None:
    missing = statement_of(sa.select(c.id, c.kind).where(c.id == sa.bindparam("id")))
    scratch._scope.one_statement(lambda unit: unit.change(INSERT, {"id": "a"}))
    scope = scratch._scope
    assert scope.read(lambda unit: unit.row(missing, {"id": "a"})) == {"id": "a", "kind": None}
    assert scope.read(lambda unit: unit.row(missing, {"id": "b"})) is None
    assert scope.read(lambda unit: unit.value(missing, {"id": "b"})) is None
    assert scope.read(lambda unit: unit.rows(missing, {"id": "b"})) == []


def test_a_block_whose_statement_was_cut_off_refuses_no_later_call(scratch: StateStore) -> None:
    """backends B-87: as by a signal's exception between the block and its end."""
    block = scratch._scope.inside()
    leave: Any = block.__exit__  # as a ``with`` statement keeps it
    block.__enter__()
    with pytest.raises(NestedTransaction):
        scratch.receipts.list()
    del leave
    assert not scratch.receipts.list().items
