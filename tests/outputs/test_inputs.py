from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, create_model, model_validator
from support.each import with_each
from support.outputs.shapes import a_run
from support.refusal import refused
from support.workflows.steps import together

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, InvalidValue, NotFound, PayloadTooLarge, StaleVersion
from lastlight_state.outputs import inputs as outputs_inputs
from lastlight_state.testing import Database


class Start(BaseModel):
    description: str
    depth: int = 3


class Told(BaseModel):
    """An input that may be passed as a list of one text."""

    description: str

    @model_validator(mode="before")
    @classmethod
    def named(cls, given: Any) -> Any:
        return {"description": given[0]} if isinstance(given, list) else given


def test_the_input_is_stored_once_and_found_again(store: StateStore, run_id: str) -> None:
    """outputs I-1: numbers by value, keys in any order."""
    first = store.outputs.inputs.ensure(run_id, {"a": 1, "b": [2]}, created_by="ana")
    assert store.outputs.inputs.ensure(run_id, {"b": [2.0], "a": 1.0}) == first
    assert (first.revision, first.payload, first.created_by) == (0, {"a": 1, "b": [2]}, "ana")
    assert store.outputs.inputs.get(run_id) == store.outputs.inputs.find(run_id) == first


def test_another_input_must_be_said(store: StateStore, run_id: str) -> None:
    """outputs I-1: a truth value is no number."""
    store.outputs.inputs.ensure(run_id, {"a": 1})
    with pytest.raises(AlreadyExists, match="override") as refusal:
        store.outputs.inputs.ensure(run_id, {"a": True})
    assert refusal.value.details["revision"] == 0
    store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="typo")
    with pytest.raises(AlreadyExists) as refusal:
        store.outputs.inputs.ensure(run_id, {"a": 3})
    assert refusal.value.details["revision"] == 1


def test_an_override_stands_when_the_resume_passes_the_original(store: StateStore, run_id: str) -> None:
    """outputs I-2, I-3: the earlier payload stays readable."""
    store.outputs.inputs.ensure(run_id, {"a": 1})
    override = store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="typo")
    assert store.outputs.inputs.ensure(run_id, {"a": 1}) == override
    assert store.outputs.inputs.get(run_id, revision=0).payload == {"a": 1}
    listed = store.outputs.inputs.list(run_id).items
    assert [(one.revision, one.reason) for one in listed] == [(1, "typo"), (0, None)]
    assert not hasattr(listed[0], "payload")


def test_each_revision_is_found_by_its_number(store: StateStore, run_id: str) -> None:
    """outputs I-3: of the run that is asked for, and none beyond the last."""
    for run in (run_id, a_run(store)):
        store.outputs.inputs.ensure(run, {"of": run, "a": 0})
    for revision in (1, 2):
        store.outputs.inputs.override(run_id, {"a": revision}, expected_revision=revision - 1, reason="again")
    found = [store.outputs.inputs.get(run_id, revision=revision) for revision in (2, 0, 1)]
    assert [(one.revision, one.payload["a"], one.run_id) for one in found] == [
        (revision, revision, run_id) for revision in (2, 0, 1)
    ]
    with pytest.raises(NotFound):
        store.outputs.inputs.get(run_id, revision=3)


def test_of_two_racing_overrides_one_is_stale(every_backend: StateStore) -> None:
    """outputs I-2."""
    run_id, inputs = a_run(every_backend), every_backend.outputs.inputs
    inputs.ensure(run_id, {"a": 0})
    done = together(
        [lambda i=i: inputs.override(run_id, {"a": i}, expected_revision=0, reason="race") for i in (1, 2)]  # type: ignore[misc]
    )
    [stale] = [one for one in done if isinstance(one, BaseException)]
    assert isinstance(stale, StaleVersion)
    assert stale.found == 1


def test_an_override_needs_an_input_and_a_reason(store: StateStore, run_id: str) -> None:
    """outputs I-2."""
    with pytest.raises(NotFound):
        store.outputs.inputs.override(run_id, {"a": 1}, expected_revision=0, reason="x")
    with pytest.raises(InvalidValue):
        store.outputs.inputs.override(run_id, {"a": 1}, expected_revision=0, reason=" ")


def test_a_run_keeps_the_defaults_of_its_start(store: StateStore, run_id: str) -> None:
    """outputs I-4: a resume with the same arguments and newer code is no conflict."""
    later: Any = create_model("Start", description=(str, ...), depth=(int, 9))
    first = store.outputs.inputs.ensure(run_id, {"description": "x"}, model=Start)
    assert store.outputs.inputs.ensure(run_id, {"description": "x"}, model=later) == first
    assert first.payload == {"description": "x", "depth": 3}
    assert first.parse(Start) == Start(description="x")


def test_an_input_that_does_not_fit_is_not_written(store: StateStore, run_id: str) -> None:
    """outputs I-4, O-3."""
    with pytest.raises(InvalidValue) as refusal:
        store.outputs.inputs.ensure(run_id, {"depth": "deep"}, model=Start)
    assert [issue.path for issue in refusal.value.issues] == ["description", "depth"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidValue, match="object"):
        store.outputs.inputs.ensure(run_id, ["no object"])
    with pytest.raises(PayloadTooLarge):
        store.outputs.inputs.ensure(run_id, {"a": "x" * 1024 * 1024})
    assert store.outputs.inputs.find(run_id) is None
    with pytest.raises(NotFound):
        store.outputs.inputs.get(run_id)


def test_an_unknown_run_has_no_input(store: StateStore) -> None:
    """outputs O-2."""
    with pytest.raises(NotFound) as refusal:
        store.outputs.inputs.ensure("nobody", {"a": 1})
    assert refusal.value.kind == "workflow_run"


@with_each(
    "statement",
    [
        "UPDATE run_inputs SET reason = 'x'",
        "DELETE FROM run_inputs",
        "UPDATE output_history SET reason = 'x'",
        "DELETE FROM output_history",
        "DELETE FROM output_tables",
    ],
)
def test_the_database_refuses_to_forget(database: Database, statement: str) -> None:
    """outputs O-1: inputs, history and registry."""
    store = database.open(migrate=True)
    run_id = a_run(store)
    store.outputs.inputs.ensure(run_id, {"a": 1})
    made = store.outputs.define("notes", list[str])
    store.outputs.results.put(made, run_id, "n", ["a"])
    store.outputs.results.put(made, run_id, "n", ["b"])
    raw = database.raw()
    with refused():
        raw.execute(statement)


@pytest.mark.parametrize("table", ["run_inputs", "output_history", "output_tables"])
def test_a_stray_client_cannot_replace_rows(sqlite_database: Database, table: str) -> None:
    """outputs O-1: ``INSERT OR REPLACE`` deletes without a delete trigger."""
    store = sqlite_database.open()
    run_id = a_run(store)
    store.outputs.inputs.ensure(run_id, {"a": 1})
    made = store.outputs.define("notes", list[str])
    store.outputs.results.put(made, run_id, "n", ["a"])
    store.outputs.results.put(made, run_id, "n", ["b"])
    with refused():
        sqlite_database.raw().execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")


def test_a_resume_with_an_equal_set_finds_its_input(store: StateStore, run_id: str) -> None:
    """outputs I-1: sets have another order in every process."""
    model: Any = create_model("Given", tags=(set[int], ...))
    first = store.outputs.inputs.ensure(run_id, {"tags": {0, 8}}, model=model)
    assert store.outputs.inputs.ensure(run_id, {"tags": {8, 0}}, model=model) == first


def test_an_instance_whose_aliases_are_other_fields_names_is_stored_as_it_is(store: StateStore, run_id: str) -> None:
    """outputs I-4: an instance is read by field names alone."""

    class Swapped(BaseModel):
        a: int = Field(alias="b")
        b: int = Field(alias="a")

    value = Swapped.model_validate({"b": 1, "a": 2})
    assert store.outputs.inputs.ensure(run_id, value, model=Swapped).payload == {"a": 1, "b": 2}


def test_an_input_is_compared_with_those_of_its_run_alone(store: StateStore, run_id: str) -> None:
    """outputs I-1, I-2: what another run was given or has reached counts for nothing."""
    other = a_run(store)
    for run, payload in ((run_id, {"a": 1}), (other, {"b": 1})):
        assert store.outputs.inputs.ensure(run, payload).revision == 0
    store.outputs.inputs.override(other, {"b": 2}, expected_revision=0, reason="typo")
    for payload in ({"b": 1}, {"b": 2}):
        with pytest.raises(AlreadyExists):
            store.outputs.inputs.ensure(run_id, payload)
    assert store.outputs.inputs.ensure(run_id, {"a": 1}).payload == {"a": 1}
    for expected in (1, 5):
        with pytest.raises(StaleVersion):
            store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=expected, reason="typo")
    assert store.outputs.inputs.get(run_id).revision == 0
    assert store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="typo").revision == 1
    assert [store.outputs.inputs.get(run).payload for run in (run_id, other)] == [{"a": 2}, {"b": 2}]


def test_only_an_input_of_typed_columns_is_compared_as_they_would_hold_it(store: StateStore, run_id: str) -> None:
    """outputs I-1: true is not 1 in any other, and another payload is another one in either."""
    store.outputs.inputs.ensure(run_id, {"isUrgent": True})
    with pytest.raises(AlreadyExists):
        store.outputs.inputs.ensure(run_id, {"is_urgent": 1})
    imported = a_run(store)
    store.outputs.inputs.ensure(imported, {"is_urgent": 1})
    store.outputs.inputs.override(imported, {"is_urgent": 1, "x": 2}, expected_revision=0, reason=outputs_inputs.REASON)
    assert store.outputs.inputs.ensure(imported, {"isUrgent": True, "x": 2}).revision == 1
    for payload in ({"isUrgent": False, "x": 2}, {"other": 1}):
        with pytest.raises(AlreadyExists):
            store.outputs.inputs.ensure(imported, payload)
    with pytest.raises(AlreadyExists):
        store.outputs.inputs.ensure(imported, ["text"], model=Told)
