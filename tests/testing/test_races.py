"""Races that a test arranges: what happens between two statements of one call."""

from __future__ import annotations

from lastlight_state import StateStore
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger


def test_an_act_happens_once_before_the_statement_that_begins_so(store: StateStore, database: Database) -> None:
    """packaging PT-25."""
    other = database.open()
    runs = store.workflows.runs
    run = runs.create("review", trigger=Trigger("t-1"), phase="plan")
    with racing(store) as race:
        race.before("SELECT", lambda: other.workflows.runs.merge_scratch(run.id, {"seen": 1}))
        assert runs.get(run.id).scratch == {"seen": 1}
        other.workflows.runs.merge_scratch(run.id, {"seen": 2})
        assert runs.get(run.id).scratch == {"seen": 2}
    assert race.left == 0


def test_an_act_happens_before_the_statement_of_its_number(store: StateStore, database: Database) -> None:
    """packaging PT-25: counted from 1 in the block, without those that begin and end transactions."""
    other = database.open()
    runs = store.workflows.runs
    run = runs.create("review", trigger=Trigger("t-1"), phase="plan")
    with racing(store) as race:
        race.before(2, lambda: other.workflows.runs.cancel(run.id, by="ana", reason="enough"))
        found = [runs.get(run.id).status for _ in range(3)]
    assert found == ["running", "cancelled", "cancelled"]
    assert len(race.statements) == 3


def test_what_did_not_happen_is_left(store: StateStore) -> None:
    """packaging PT-25."""
    with racing(store) as race:
        race.before("DELETE", lambda: None)
        store.workflows.runs.list()
    assert race.left == 1


def test_a_store_is_as_it_was_after_the_block(store: StateStore, database: Database) -> None:
    """packaging PT-25."""
    happened: list[int] = []
    with racing(store) as race:
        race.before("SELECT", lambda: happened.append(1))
    store.workflows.runs.list()
    assert happened == []
    assert race.statements == []


def test_an_act_happens_before_a_unit_begins(store: StateStore, database: Database) -> None:
    """packaging PT-25: while no lock is held, so it may write on either database."""
    other = database.open()
    runs = store.workflows.runs
    run = runs.create("review", trigger=Trigger("t-1"), phase="plan")
    with racing(store) as race:
        race.before_unit(2, lambda: other.workflows.runs.merge_scratch(run.id, {"theirs": 1}))
        runs.get(run.id)
        runs.merge_scratch(run.id, {"ours": 1})
    assert race.left == 0
    assert runs.get(run.id).scratch == {"theirs": 1, "ours": 1}
