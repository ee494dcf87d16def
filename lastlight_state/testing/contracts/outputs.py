"""Contract tests of outputs. The store must be allowed to create output tables: a server needs ``migrate=True``."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from lastlight_state import AlreadyExists, InvalidValue, NotFound, ReadOnlyTransaction, StaleVersion, StateStore
from lastlight_state.outputs import CacheKey, OutputTable
from lastlight_state.testing.contracts.steps import fresh, start_run


class ContractFinding(BaseModel):
    """A model that has values of types which databases store in different ways."""

    summary: str
    severity: Literal["low", "high"] = "low"
    done: bool | None = None
    price: Decimal = Decimal(0)
    found_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    parts: list[int] = []


_FULL: dict[str, Any] = {
    "summary": "✓",
    "severity": "high",
    "done": False,
    "price": "1.10",
    "found_at": datetime(2026, 2, 3, 12, 34, 56, 789_000, UTC),
    "parts": [1, 2],
}


class OutputsContract:
    """Tests of ``store.outputs``. The first test creates one table, ``contract_finding``, that all tests use."""

    def test_a_definition_is_made_once(self, store: StateStore) -> None:
        table = _table(store)
        assert (table.table_name, _table(store).signature) == ("contract_finding", table.signature)
        assert "run_id" not in table.prompt_schema()
        assert store.outputs.catalog.plan("contractFinding", ContractFinding).sql == ()

    def test_the_input_of_a_run_is_stored_once_and_changed_by_saying_so(self, store: StateStore) -> None:
        run, inputs = start_run(store).id, store.outputs.inputs
        given = inputs.ensure(run, {"issue": 7})
        assert inputs.ensure(run, {"issue": 7.0}) == given
        with pytest.raises(AlreadyExists):
            inputs.ensure(run, {"issue": True})
        changed = inputs.override(run, {"issue": 8}, expected_revision=0, reason="wrong issue")
        assert (changed.revision, inputs.get(run).payload, inputs.get(run, revision=0)) == (1, {"issue": 8}, given)
        with pytest.raises(StaleVersion):
            inputs.override(run, {"issue": 9}, expected_revision=0, reason="late")

    def test_a_row_is_read_as_it_was_written(self, store: StateStore) -> None:
        run, table = start_run(store).id, _table(store)
        put = store.outputs.results.put(table, run, "review", _FULL, iteration=2)
        read = store.outputs.results.get(table, run, "review", iteration=2)
        assert read == put
        assert read.value == ContractFinding(**_FULL)
        assert str(read.value.price) == "1.10"
        assert store.outputs.results.find_latest(table, run, "review") == put
        with pytest.raises(InvalidValue):
            store.outputs.results.put(table, run, "review", {"summary": "x", "severity": "dire"})
        with pytest.raises(NotFound):
            store.outputs.results.get(table, run, "review", iteration=1)

    def test_what_was_produced_is_never_lost(self, store: StateStore) -> None:
        run, table, results = start_run(store).id, _table(store), store.outputs.results
        for summary in ("first", "second", "second"):
            results.put(table, run, "review", {"summary": summary})
        results.withdraw(table, run, "review", reason="reset")
        told = results.history(table, run, "review").items
        assert [(one.value["summary"], one.cause) for one in told] == [("second", "withdrawn"), ("first", "replaced")]
        assert results.find(table, run, "review") is None

    def test_a_snapshot_holds_the_input_and_every_row(self, store: StateStore) -> None:
        run, table = start_run(store).id, _table(store)
        with store.transaction() as tx:
            tx.outputs.inputs.ensure(run, {"issue": 7})
            tx.outputs.results.put(table, run, "a", {"summary": "x"})
        snapshot = store.outputs.snapshot.load(run)
        assert snapshot.input == {"issue": 7}
        assert snapshot.get(table, "a").value.summary == "x"
        assert snapshot.outputs["contractFinding"] is snapshot.outputs["contract_finding"]

    def test_a_cached_result_is_found_by_everything_it_depends_on(self, store: StateStore) -> None:
        table, cache = _table(store), store.outputs.cache
        key = CacheKey(fresh("wf"), "review", {"prompt": "p"})
        assert cache.find(key, table) is None
        first = cache.ensure(key, table, _FULL)
        assert cache.ensure(key, table, {"summary": "other"}) == first == cache.find(key, table)
        assert first.value == ContractFinding(**_FULL)
        assert cache.find(CacheKey(key.workflow_name, "review", {"prompt": "q"}), table) is None
        assert cache.clear(workflow_name=key.workflow_name) == 1

    def test_a_query_of_a_person_reads_and_never_writes(self, store: StateStore) -> None:
        run, table = start_run(store).id, _table(store)
        store.outputs.results.put(table, run, "review", {"summary": "x"})
        told = store.outputs.query.rows("SELECT summary FROM contract_finding WHERE run_id = :run", {"run": run})
        assert told.rows == (("x",),)
        with pytest.raises((ReadOnlyTransaction, InvalidValue)):
            store.outputs.query.rows("DELETE FROM contract_finding RETURNING summary")
        assert store.outputs.results.count(table, run_id=run) == 1


def _table(store: StateStore) -> OutputTable[ContractFinding]:
    return store.outputs.define("contractFinding", ContractFinding)
