"""Runs ensured by a key: made once, whoever asks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.workflows.crew import Crew
from support.workflows.steps import TRIGGER, Raw, started, together

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.testing import Database
from lastlight_state.workflows import EnsuredRun, RunOptions


def ensured(store: StateStore, key: str, **given: Any) -> EnsuredRun:
    options = {name: given.pop(name) for name in tuple(given) if name in RunOptions.__dataclass_fields__}
    given = {"workflow_name": "deploy", "trigger": TRIGGER, "phase": "plan", **given}
    name = given.pop("workflow_name")
    return store.workflows.runs.ensure(key, name, options=RunOptions(**options), **given)


def test_an_ensured_run_is_made_once_whatever_became_of_it(store: StateStore, raw: Raw) -> None:
    """workflows W-23."""
    first = ensured(store, "key-1", context={"a": 1})
    assert (first.created, first.run.run_key) == (True, "key-1")
    assert ensured(store, "key-1", context={"a": 1.0}, scratch={"other": 1}, status="queued").run == first.run
    ended = store.workflows.runs.finish(first.run.id, "succeeded")
    again = ensured(store, "key-1", context={"a": 1})
    assert (again.created, again.run) == (False, ended)
    assert len(raw("SELECT 1 FROM workflow_runs")) == 1


def test_an_ensured_key_with_another_content_is_refused(store: StateStore) -> None:
    """workflows W-23."""
    started(store, id="run-0")
    first = ensured(store, "key-1", context={"a": 1})
    others: list[dict[str, Any]] = [
        {"context": {"a": 2}},
        {"context": None},
        {"trigger": replace(TRIGGER, id="t-2")},
        {"trigger": replace(TRIGGER, repo="gadget")},
        {"parent_run_id": "run-0"},
    ]
    for other in others:
        with pytest.raises(AlreadyExists) as refused:
            ensured(store, "key-1", **{"context": {"a": 1}, **other})
        assert (refused.value.key, refused.value.details["run_key"]) == (first.run.id, "key-1")
    assert store.workflows.runs.get(first.run.id) == first.run


def test_keys_belong_to_their_workflow(store: StateStore) -> None:
    """workflows W-23."""
    first, other = ensured(store, "key-1"), ensured(store, "key-1", workflow_name="release")
    assert other.created
    assert first.run.id != other.run.id


def test_an_ensured_run_takes_no_used_id(store: StateStore) -> None:
    """workflows W-22, W-23."""
    taken = started(store)
    with pytest.raises(AlreadyExists) as refused:
        ensured(store, "key-1", id=taken.id)
    assert refused.value.key == taken.id
    assert store.workflows.runs.get(taken.id) == taken


def test_a_disabled_workflow_is_ensured_only_where_it_runs(store: StateStore, raw: Raw) -> None:
    """workflows W-23, W-95."""
    existing = ensured(store, "key-1").run
    raw(
        "INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('deploy', ?, ?)", False, existing.started_at
    )
    with pytest.raises(Conflict) as refused:
        ensured(store, "key-2")
    assert refused.value.code == "workflow_disabled"
    assert ensured(store, "key-1").run == existing
    assert raw("SELECT id FROM workflow_runs") == [(existing.id,)]


def test_of_fifty_ensures_at_once_one_creates(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-23."""
    outcomes = together([partial(ensured, every_backend, "key-1")] * 50)
    made = [outcome for outcome in outcomes if isinstance(outcome, EnsuredRun)]
    assert len(made) == 50
    assert sum(outcome.created for outcome in made) == 1
    assert len({outcome.run.id for outcome in made}) == 1
    assert len(raw("SELECT 1 FROM run_transitions")) == 1


ENSURE = """
from concurrent.futures import ThreadPoolExecutor
from lastlight_state import StateStore
from lastlight_state.workflows import Trigger

def ensure(index):
    return store.workflows.runs.ensure(f"key-{index % 5}", "deploy", trigger=Trigger("t-1"), phase="plan")

[url] = arguments
with StateStore.open(url, migrate=False) as store, ThreadPoolExecutor(4) as pool:
    ready()
    result = [[ensured.run.run_key, ensured.run.id, ensured.created] for ensured in pool.map(ensure, range(20))]
"""


def test_of_several_processes_that_ensure_one_creates(fresh_database: Database, crew: Crew) -> None:
    """workflows W-23."""
    told = [ensured for process in crew.race(ENSURE, *[[fresh_database.url]] * 4) for ensured in process]
    assert len({run_id for _, run_id, _ in told}) == 5
    assert sorted(key for key, _, created in told if created) == [f"key-{index}" for index in range(5)]
