from __future__ import annotations

import sys
import threading
from decimal import Decimal
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, create_model
from support.outputs.shapes import Analysis, Flags, a_run
from support.preloaded import run_program

from lastlight_state import StateStore
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, InvalidValue, LostRace, NotFound, PayloadTooLarge, SchemaMismatch
from lastlight_state.testing import Database, racing


class Price(BaseModel):
    amount: Decimal


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters the rows of each read have."""
    seen: list[int] = []
    build = Compiled.rows

    def counting(compiled: Compiled, found: Any) -> Any:
        seen.append(sum(len(str(value)) for row in found for value in row))
        return build(compiled, found)

    monkeypatch.setattr(Compiled, "rows", counting)
    return seen


def test_a_snapshot_is_the_input_and_every_output(store: StateStore, run_id: str) -> None:
    """outputs N-1, N-3, T-3: under both names the same tuple, untouched keys empty, no input among them."""
    flags = store.outputs.define("truthFlags", Flags)
    store.outputs.define("unused", list[str])
    store.outputs.inputs.ensure(run_id, {"a": 1})
    store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="x")
    for node, iteration in (("b", 0), ("a", 10), ("a", 2)):
        store.outputs.results.put(flags, run_id, node, {"yes": True, "no": False}, iteration=iteration)
    found = store.outputs.snapshot.load(run_id)
    assert (found.input, found.input_revision) == ({"a": 2}, 1)
    assert set(found.outputs) == {"truthFlags", "truth_flags", "unused"}
    assert found.outputs["truthFlags"] is found.outputs["truth_flags"]
    assert found.outputs["truthFlags"] == tuple(store.outputs.results.load(flags, run_id))
    assert [(row.node_id, row.iteration) for row in found.outputs["truthFlags"]] == [("a", 2), ("a", 10), ("b", 0)]
    assert found.get(flags, "b").value == Flags(yes=True, no=False)
    assert found.get(flags, "b").data["yes"] is True
    latest = found.find_latest(flags, "a")
    assert latest is not None
    assert latest.iteration == 10
    assert found.find("unused", "a") is None
    with pytest.raises(NotFound):
        found.get("unused", "a")


def test_an_unknown_run_has_no_input_and_no_rows(store: StateStore) -> None:
    """outputs N-6."""
    store.outputs.define("analysis", Analysis)
    found = store.outputs.snapshot.load("nobody")
    assert (found.input, found.input_revision, dict(found.outputs)) == (None, None, {"analysis": ()})
    assert repr(found) == "RunSnapshot(run_id='nobody', input_revision=None, RunOutputs({'analysis': 0}))"


def test_another_process_without_models_reads_the_same(database: Database) -> None:
    """outputs N-3: truth values included."""
    ours, theirs = database.open(migrate=True), database.open()
    run_id = a_run(ours)
    flags = ours.outputs.define("flags", Flags)
    ours.outputs.results.put(flags, run_id, "n", {"yes": True})
    assert (
        theirs.outputs.snapshot.load(run_id).get("flags", "n").data == ours.outputs.results.get(flags, run_id, "n").data
    )


def test_tables_defined_later_are_in_the_next_snapshot(database: Database) -> None:
    """outputs N-1: also those, and the columns, that another process brings."""
    ours, theirs = database.open(migrate=True), database.open(migrate=True)
    run_id = a_run(ours)
    assert dict(ours.outputs.snapshot.load(run_id).outputs) == {}
    narrow: Any = create_model("Notes", text=(str, ...))
    wide: Any = create_model("Notes", text=(str, ...), more=(int | None, None))
    ours.outputs.define("notes", narrow)
    assert dict(ours.outputs.snapshot.load(run_id).outputs) == {"notes": ()}
    theirs.outputs.results.put(theirs.outputs.define("notes", wide), run_id, "n", {"text": "x", "more": 1})
    assert ours.outputs.snapshot.load(run_id).get("notes", "n").data == {"text": "x"}
    assert database.open().outputs.snapshot.load(run_id).get("notes", "n").data == {"text": "x", "more": 1}


def test_targets_narrow_and_a_limit_names_the_largest(store: StateStore, run_id: str) -> None:
    """outputs N-5."""
    notes, analysis = store.outputs.define("notes", list[str]), store.outputs.define("analysis", Analysis)
    store.outputs.results.put(notes, run_id, "n", ["x" * 1000])
    store.outputs.results.put(analysis, run_id, "n", {"summary": "small"})
    with pytest.raises(PayloadTooLarge) as refusal:
        store.outputs.snapshot.load(run_id, max_bytes=500)
    assert refusal.value.where == "notes"
    assert set(store.outputs.snapshot.load(run_id, targets=[analysis], max_bytes=500).outputs) == {"analysis"}
    assert set(store.outputs.snapshot.load(run_id, max_bytes=2**63 - 1).outputs) == {"analysis", "notes"}
    for one in ("notes", notes):
        with pytest.raises(InvalidValue, match="targets"):
            store.outputs.snapshot.load(run_id, targets=one)  # type: ignore[arg-type]


def test_a_snapshot_may_be_as_large_as_its_limit(store: StateStore, run_id: str) -> None:
    """outputs N-5: the rows of all its tables together, and none of another run."""
    other = a_run(store)
    for key in ("notes", "words"):
        made = store.outputs.define(key, list[str])
        store.outputs.results.put(made, run_id, "n", ["x" * 100])
        store.outputs.results.put(made, other, "n", ["x" * 10_000])
    with pytest.raises(PayloadTooLarge) as refusal:
        store.outputs.snapshot.load(run_id, max_bytes=1)
    size = refusal.value.actual
    assert 200 < size < 2_000
    with pytest.raises(PayloadTooLarge):
        store.outputs.snapshot.load(run_id, max_bytes=size - 1)
    found = store.outputs.snapshot.load(run_id, max_bytes=size)
    assert [found.get(key, "n").data for key in ("notes", "words")] == [["x" * 100]] * 2


def test_past_its_limit_no_content_is_sent(store: StateStore, run_id: str, counted: list[int]) -> None:
    """outputs N-5: the database adds up first."""
    notes = store.outputs.define("notes", list[str])
    for i in range(5):
        store.outputs.results.put(notes, run_id, "n", ["x" * 10_000], iteration=i)
    store.outputs.snapshot.load(run_id)
    assert sum(counted) > 50_000
    counted.clear()
    for limit in (49_000, 1):
        with pytest.raises(PayloadTooLarge) as refusal:
            store.outputs.snapshot.load(run_id, max_bytes=limit)
        assert (refusal.value.where, refusal.value.actual > 50_000) == ("notes", True)
    assert sum(counted) < 5_000
    store.outputs.results.load(notes, run_id, limit=2)


def test_a_registered_table_that_is_gone_is_no_empty_list(fresh_database: Database) -> None:
    """outputs N-6."""
    store = fresh_database.open(migrate=True)
    run_id = a_run(store)
    store.outputs.define("analysis", Analysis)
    store.outputs.define("notes", list[str])
    store.outputs.snapshot.load(run_id)
    fresh_database.raw().execute("DROP TABLE notes")
    with pytest.raises(SchemaMismatch, match="notes"):
        store.outputs.snapshot.load(run_id)


def test_a_registered_table_that_is_there_is_not_called_gone(fresh_database: Database) -> None:
    """outputs N-6: where a column of it is missing, each read and write says what the database says."""
    store = fresh_database.open(migrate=True)
    run_id = a_run(store)
    made = store.outputs.define("analysis", Analysis)
    results = store.outputs.results
    store.outputs.snapshot.load(run_id)
    fresh_database.raw().execute("ALTER TABLE analysis DROP COLUMN severity")
    for call in (
        lambda: store.outputs.snapshot.load(run_id),
        lambda: results.put(made, run_id, "n", {"summary": "x"}),
        lambda: results.get(made, run_id, "n"),
        lambda: results.load(made, run_id),
    ):
        with pytest.raises(BackendError, match="severity") as refused:
            call()
        assert type(refused.value) is BackendError


def test_a_snapshot_beside_ever_new_tables_is_a_lost_race(postgres_database: Database) -> None:
    """outputs N-1, Postgres: each of them makes the statement anew."""
    store, rival = postgres_database.open(migrate=True), postgres_database.open(migrate=True)
    run_id = a_run(store)
    with racing(store) as race:
        for number in range(1, 6):
            race.before_unit(number, partial(rival.outputs.define, f"t{number}", Analysis))
        with pytest.raises(LostRace, match="registered 5 times"):
            store.outputs.snapshot.load(run_id)
    assert race.left == 0
    assert len(store.outputs.snapshot.load(run_id).outputs) == 5


def test_statements_for_some_targets_alone_are_kept_in_bounds(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """outputs N-5, Postgres."""
    store = postgres_database.open(migrate=True)
    monkeypatch.setattr(SHAPES, "_most", 200_000)
    keys = [f"t{number}" for number in range(6)]
    store.outputs.catalog.define_all(dict.fromkeys(keys, list[str]))
    for wanted in [some for size in range(1, 7) for some in combinations(keys, size)][:40]:
        assert set(store.outputs.snapshot.load("nobody", targets=wanted).outputs) == set(wanted)
        assert SHAPES.size <= 200_000


@pytest.mark.parametrize("keys", [1, 50])
def test_the_statements_of_a_snapshot(database: Database, monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """outputs N-4: one on Postgres, however many keys; on SQLite two each, the registry and the input."""
    store = database.open(migrate=True)
    run_id = a_run(store)
    store.outputs.catalog.define_all({f"note{i}": list[str] for i in range(keys)})
    store.outputs.snapshot.load(run_id)
    counted: list[str] = []
    fetch = Unit._fetch

    def counting(unit: Unit, compiled: Any, values: Any) -> Any:
        counted.append(compiled.sql)
        return fetch(unit, compiled, values)

    monkeypatch.setattr(Unit, "_fetch", counting)
    store.outputs.snapshot.load(run_id)
    assert len(counted) == (1 if database.name == "postgresql" else 2 * keys + 2)


def test_a_decimal_keeps_its_digits(store: StateStore, run_id: str) -> None:
    """outputs N-4: they pass through no float."""
    amount = Decimal("123456789012345678901234567890.10")
    made = store.outputs.define("price", Price)
    store.outputs.results.put(made, run_id, "n", {"amount": amount})
    assert str(store.outputs.snapshot.load(run_id).get(made, "n").data["amount"]) == str(amount)


def test_two_outputs_of_one_transaction_are_both_in_or_both_out(every_backend: StateStore) -> None:
    """outputs N-2: while a writer commits pairs."""
    run_id = a_run(every_backend)
    left, right = every_backend.outputs.define("lefts", list[int]), every_backend.outputs.define("rights", list[int])
    done = threading.Event()

    def write() -> None:
        for i in range(60):
            with every_backend.transaction() as tx:
                tx.outputs.results.put(left, run_id, "n", [i], iteration=i)
                tx.outputs.results.put(right, run_id, "n", [i], iteration=i)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not done.is_set():
            found = every_backend.outputs.snapshot.load(run_id)
            assert [row.data for row in found.outputs["lefts"]] == [row.data for row in found.outputs["rights"]]
    finally:
        writer.join()


def test_a_snapshot_inside_a_transaction_sees_its_writes(every_backend: StateStore) -> None:
    """outputs N-2."""
    run_id = a_run(every_backend)
    made = every_backend.outputs.define("analysis", Analysis)
    with every_backend.transaction() as tx:
        tx.outputs.results.put(made, run_id, "n", {"summary": "mine"})
        assert tx.outputs.snapshot.load(run_id).get(made, "n").data["summary"] == "mine"


_CRASH = """
import os, signal, sys
from support.outputs.shapes import Analysis
from lastlight_state import StateStore
store = StateStore.open(sys.argv[1], migrate=True)
made = store.outputs.define("analysis", Analysis)
store.outputs.inputs.ensure(sys.argv[2], {"tasks": 6})
for i in range(3):
    store.outputs.results.put(made, sys.argv[2], f"task-{i}", {"summary": str(i)})
with store.transaction() as tx:
    tx.outputs.results.put(made, sys.argv[2], "task-3", {"summary": "never"})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_crash_the_snapshot_has_what_was_committed(fresh_database: Database) -> None:
    """outputs I-5: the input and half of the tasks."""
    run_id = a_run(fresh_database.open(migrate=True))
    tests = Path(__file__).parents[1]
    words = [sys.executable, "-c", _CRASH, fresh_database.url, run_id]
    assert run_program(words, cwd=tests, timeout=60, check=False).returncode == -9
    found = fresh_database.open().outputs.snapshot.load(run_id)
    assert found.input == {"tasks": 6}
    assert [row.data["summary"] for row in found.outputs["analysis"]] == ["0", "1", "2"]
