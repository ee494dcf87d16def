"""Live runs move on: phases are appended, scratch is merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.workflows.crew import Crew
from support.workflows.steps import PLAN, Raw, started, together

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, CorruptData, InvalidValue, PayloadTooLarge, StateError
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import CompletedPhase, PhaseEntry

LIMIT = 65_536


def stored_history(raw: Raw, run_id: str) -> list[dict[str, Any]]:
    """The history of a run as its column has it."""
    [(history,)] = raw("SELECT phase_history FROM workflow_runs WHERE id = ?", run_id)
    entries: list[dict[str, Any]] = json.loads(history) if isinstance(history, str) else history
    return entries


def test_a_phase_is_appended_with_what_it_hands_on(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-25."""
    run = started(store, scratch={"a": 1})
    at = frozen_clock.advance(seconds=1)
    progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", True, "built"), scratch={"b": "é"})
    assert (progress.phase, progress.phase_count, progress.updated_at) == ("build", 1, at)
    assert progress.scratch_bytes == len('{"a":1,"b":"é"}'.encode())
    stored = store.workflows.runs.get(run.id)
    phase = CompletedPhase(phase="build", success=True, summary="built", at=at)
    assert (stored.phase_history, stored.scratch) == ((phase,), {"a": 1, "b": "é"})
    entry = {"phase": "build", "timestamp": "2026-02-03T12:34:57.789Z", "success": True, "summary": "built"}
    assert stored_history(raw, run.id) == [entry]
    assert (stored.current_phase, stored.phase_count, stored.updated_at) == ("build", 1, at)


def test_the_same_phase_may_come_again(store: StateStore, raw: Raw) -> None:
    """workflows W-25: without a summary the entry has none."""
    run = started(store)
    store.workflows.runs.append_phase(run.id, PhaseEntry("build", False))
    progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    assert (progress.phase_count, progress.scratch_bytes) == (2, None)
    history = store.workflows.runs.get(run.id).phase_history
    assert [(entry.phase, entry.success) for entry in history] == [("build", False), ("build", True)]
    assert "summary" not in stored_history(raw, run.id)[0]


def test_a_phase_may_say_when_it_was(store: StateStore) -> None:
    """workflows W-25."""
    run = started(store)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    store.workflows.runs.append_phase(run.id, PhaseEntry("build", True, at=at))
    stored = store.workflows.runs.get(run.id)
    assert stored.phase_history[0].at == datetime(2026, 1, 1, tzinfo=UTC)
    assert stored.updated_at == run.updated_at


def test_a_history_of_another_program_is_read_as_far_as_it_can_be(store: StateStore, raw: Raw) -> None:
    """workflows W-25: nothing in it keeps anybody from reading or cancelling the run."""
    run = started(store)
    entries = '[{"phase": "plan", "timestamp": "yesterday"}, {"success": true, "summary": 3}, 7]'
    raw("UPDATE workflow_runs SET phase_history = ? WHERE id = ?", entries, run.id)
    unknown = CompletedPhase(phase="", success=None, summary=None, at=None)
    read = store.workflows.runs.get(run.id).phase_history
    assert read == (CompletedPhase(phase="plan"), unknown.model_copy(update={"success": True}), unknown)
    raw("UPDATE workflow_runs SET phase_history = '{}' WHERE id = ?", run.id)
    assert store.workflows.runs.cancel(run.id, by="ana", reason="odd").phase_history == ()


def test_times_never_move_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5: whatever the clock does."""
    run = started(store)
    frozen_clock.advance(timedelta(hours=-1))
    progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    assert progress.updated_at == store.workflows.runs.get(run.id).updated_at == run.updated_at
    assert store.workflows.runs.finish(run.id, "succeeded").updated_at == run.updated_at


def test_a_phase_that_may_not_be_stored_is_refused(store: StateStore) -> None:
    """workflows W-2, W-3."""
    cases: list[tuple[PhaseEntry, str]] = [
        (PhaseEntry("", True), "entry.phase"),
        (PhaseEntry("build", 1), "entry.success"),  # type: ignore[arg-type]
        (PhaseEntry("build", True, "x" * 2_049), "entry.summary"),
        (PhaseEntry("build", True, at=datetime(2026, 1, 1)), "entry.at"),  # noqa: DTZ001
    ]
    for entry, where in cases:
        run = started(store)
        with pytest.raises(InvalidValue) as refused:
            store.workflows.runs.append_phase(run.id, entry)
        assert refused.value.where == where
        assert store.workflows.runs.get(run.id) == run


def test_the_history_is_bounded_in_entries_and_in_bytes(store: StateStore, raw: Raw) -> None:
    """workflows W-3: exactly the limit is accepted."""
    run = started(store)
    raw("UPDATE workflow_runs SET phase_history = ? WHERE id = ?", "[" + "1," * 1_998 + "1]", run.id)
    store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    with pytest.raises(PayloadTooLarge) as refused:
        store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    assert (refused.value.limit, refused.value.actual) == (2_000, 2_001)
    added = len(',{"phase":"build","timestamp":"2026-02-03T12:34:56.789Z","success":true}')

    def append_past(earlier: int) -> None:
        raw("UPDATE workflow_runs SET phase_history = ? WHERE id = ?", '["' + "x" * (earlier - 4) + '"]', run.id)
        store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))

    with pytest.raises(PayloadTooLarge) as refused:
        append_past(262_145 - added)
    assert (refused.value.where, refused.value.limit, refused.value.actual) == ("phase_history", 262_144, 262_145)
    append_past(262_144 - added)


def test_a_history_that_is_no_list_is_not_guessed(store: StateStore, raw: Raw) -> None:
    """workflows W-21."""
    run = started(store, scratch={"a": 1})
    raw("UPDATE workflow_runs SET phase_history = '{}', scratch = '[]' WHERE id = ?", run.id)
    with pytest.raises(CorruptData) as corrupt:
        store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    assert corrupt.value.column == "phase_history"
    with pytest.raises(CorruptData) as corrupt:
        store.workflows.runs.merge_scratch(run.id, {"b": 1})
    assert corrupt.value.column == "scratch"


def test_a_phase_counts_those_that_another_program_appended(store: StateStore, raw: Raw) -> None:
    """workflows W-25: an adopted row has a history and no count."""
    run = started(store)
    raw("UPDATE workflow_runs SET phase_history = ? WHERE id = ?", '[{"phase": "plan"}, {"phase": "build"}]', run.id)
    assert store.workflows.runs.append_phase(run.id, PhaseEntry("test", True)).phase_count == 3
    assert store.workflows.runs.get(run.id).phase_count == 3


def test_every_live_run_moves_on(store: StateStore) -> None:
    """workflows W-25, W-26."""
    cases: list[str] = ["queued", "paused", "running"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        if status == "paused":
            store.workflows.approvals.pause(run.id, PLAN)
        assert store.workflows.runs.append_phase(run.id, PhaseEntry("build", True)).phase_count == 1
        assert store.workflows.runs.merge_scratch(run.id, {"a": 1}).scratch_bytes == len('{"a":1}')


def test_an_ended_run_does_not(store: StateStore) -> None:
    """workflows W-25, W-26."""
    cases: list[Any] = ["succeeded", "failed", "cancelled"]
    for status in cases:
        run = started(store)
        ended = store.workflows.runs.finish(run.id, status)
        moves: tuple[Callable[[], object], ...] = (
            partial(store.workflows.runs.append_phase, run.id, PhaseEntry("late", True)),
            partial(store.workflows.runs.merge_scratch, run.id, {"a": 1}),
        )
        for move in moves:
            with pytest.raises(Conflict) as refused:
                move()
            assert (refused.value.code, refused.value.details["found"]) == ("run_status", status)
        assert store.workflows.runs.get(run.id) == ended


def test_only_the_holder_moves_a_run_on(store: StateStore, raw: Raw) -> None:
    """workflows W-14, case 1: a stale claim, none at all, and one of another run."""
    run = started(store)
    stale = raw.hold(run.id)
    claim = raw.hold(run.id, "worker-2")
    foreign = claim.model_copy(update={"run_id": "other"})
    before = store.workflows.runs.get(run.id)
    moves: tuple[Callable[..., object], ...] = (
        partial(store.workflows.runs.append_phase, run.id, PhaseEntry("build", True)),
        partial(store.workflows.runs.merge_scratch, run.id, {"a": 1}),
        partial(store.workflows.runs.finish, run.id, "succeeded"),
    )
    for presented in (stale, None, foreign):
        for move in moves:
            with pytest.raises(ClaimLost) as lost:
                move(claim=presented)
            assert (lost.value.held_by, lost.value.current_epoch) == ("worker-2", claim.epoch)
    assert store.workflows.runs.get(run.id) == before
    store.workflows.runs.append_phase(run.id, PhaseEntry("build", True), scratch={"a": 1}, claim=claim)
    assert store.workflows.runs.merge_scratch(run.id, {"b": 2}, claim=claim).phase_count == 1


def test_a_claim_is_no_use_where_nobody_holds_the_run(store: StateStore, raw: Raw) -> None:
    """workflows W-14."""
    run = started(store)
    claim = raw.hold(run.id)
    raw("UPDATE workflow_runs SET claim_owner = NULL WHERE id = ?", run.id)
    with pytest.raises(ClaimLost):
        store.workflows.runs.merge_scratch(run.id, {"a": 1}, claim=claim)
    store.workflows.runs.merge_scratch(run.id, {"a": 1})


def test_a_merge_sets_replaces_and_drops_top_level_keys(store: StateStore) -> None:
    """workflows W-26: nested values are replaced whole, None is stored."""
    run = started(store, scratch={"keep": 1, "nested": {"a": 1, "b": 2}, "drop": True})
    store.workflows.runs.merge_scratch(run.id, {"nested": {"c": 3}, "nothing": None}, remove=["drop", "absent"])
    assert store.workflows.runs.get(run.id).scratch == {"keep": 1, "nested": {"c": 3}, "nothing": None}
    store.workflows.runs.merge_scratch(run.id, {"again": 1}, remove=["again"])
    assert "again" not in store.workflows.runs.get(run.id).scratch
    store.workflows.runs.merge_scratch(run.id, {"k" * 1_000: 1})
    store.workflows.runs.merge_scratch(run.id, {}, remove=["k" * 1_000])
    assert list(store.workflows.runs.get(run.id).scratch) == ["keep", "nested", "nothing"]


def test_one_key_to_drop_is_not_taken_for_its_letters(store: StateStore) -> None:
    """workflows W-26."""
    run = started(store, scratch={"k": 1, "e": 2, "y": 3})
    with pytest.raises(InvalidValue) as refused:
        store.workflows.runs.merge_scratch(run.id, {}, remove="key")
    assert refused.value.where == "remove"
    assert store.workflows.runs.get(run.id) == run


def test_a_patch_is_an_object_of_json(store: StateStore) -> None:
    """workflows W-4, W-26."""
    cases: list[Any] = [None, [], "text", {"a": float("nan")}, {1: 2}, {"a": "\0"}]
    for patch in cases:
        run = started(store, scratch={"a": 1})
        with pytest.raises(InvalidValue):
            store.workflows.runs.merge_scratch(run.id, patch)
        assert store.workflows.runs.get(run.id) == run


def test_scratch_of_exactly_the_limit_is_accepted(store: StateStore) -> None:
    """workflows W-26: the whole document after the merge, in bytes."""
    run = started(store, scratch={"large": "é" * 20_000})
    room = LIMIT - len('{"large":"","small":""}') - 40_000
    progress = store.workflows.runs.merge_scratch(run.id, {"small": "x" * room})
    assert progress.scratch_bytes == LIMIT
    with pytest.raises(PayloadTooLarge) as refused:
        store.workflows.runs.merge_scratch(run.id, {"small": "x" * (room + 1)})
    assert (refused.value.limit, refused.value.actual) == (LIMIT, LIMIT + 1)
    assert "largest key 'large'" in str(refused.value)
    assert "save_output" in str(refused.value)
    assert len(store.workflows.runs.get(run.id).scratch["small"]) == room


def test_the_error_about_a_large_scratch_holds_no_payload(store: StateStore) -> None:
    """workflows W-120: a key may be payload, too."""
    run = started(store)
    with pytest.raises(PayloadTooLarge) as refused:
        store.workflows.runs.merge_scratch(run.id, {"k" * LIMIT: 1})
    assert len(str(refused.value)) < 400


def test_an_adopted_scratch_over_the_limit_may_shrink_but_not_grow(store: StateStore, raw: Raw) -> None:
    """workflows W-26."""
    run = started(store)
    adopted = '{"a": "' + "x" * 500_000 + '", "b": "' + "x" * 500_000 + '"}'
    raw("UPDATE workflow_runs SET scratch = ? WHERE id = ?", adopted, run.id)
    with pytest.raises(PayloadTooLarge):
        store.workflows.runs.merge_scratch(run.id, {"c": 1})
    with pytest.raises(PayloadTooLarge):
        store.workflows.runs.merge_scratch(run.id, {"b": "y" * 500_000})  # as large as before
    assert store.workflows.runs.merge_scratch(run.id, {"b": "y" * 400_000}).scratch_bytes == 900_015
    assert store.workflows.runs.merge_scratch(run.id, {}, remove=["a", "b"]).scratch_bytes == 2


def test_merges_and_phases_at_once_all_survive(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-25, W-26."""
    run = started(every_backend)
    runs = every_backend.workflows.runs
    merges: list[Any] = [partial(runs.merge_scratch, run.id, {f"key-{index}": index}) for index in range(10)]
    appends: list[Any] = [partial(runs.append_phase, run.id, PhaseEntry(f"p-{index}", True)) for index in range(5)]
    outcomes = together(merges + appends)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    stored = runs.get(run.id)
    assert stored.scratch == {f"key-{index}": index for index in range(10)}
    assert sorted(entry.phase for entry in stored.phase_history) == [f"p-{index}" for index in range(5)]
    assert (stored.phase_count, stored.current_phase) == (5, stored.phase_history[-1].phase)


MOVE_ON = """
from lastlight_state import StateStore
from lastlight_state.workflows import PhaseEntry

url, run_id, me = arguments
with StateStore.open(url, migrate=False) as store:
    ready()
    for index in range(5):
        store.workflows.runs.merge_scratch(run_id, {f"{me}-{index}": index})
        store.workflows.runs.append_phase(run_id, PhaseEntry(f"{me}-{index}", True), scratch={f"{me}": index})
    result = "done"
"""


def test_merges_and_phases_of_several_processes_all_survive(fresh_database: Database, crew: Crew) -> None:
    """workflows W-25, W-26."""
    store = fresh_database.open()
    run = started(store)
    crew.race(MOVE_ON, *([fresh_database.url, run.id, f"p{index}"] for index in range(4)))
    stored = store.workflows.runs.get(run.id)
    each = {f"p{process}-{index}": index for process in range(4) for index in range(5)}
    assert stored.scratch == {**each, **{f"p{process}": 4 for process in range(4)}}
    assert (stored.phase_count, sorted(entry.phase for entry in stored.phase_history)) == (20, sorted(each))


KEYS = st.sampled_from(["a", "b", "c", "d", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("aé\n\"'%:", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
MERGES = st.lists(st.tuples(st.dictionaries(KEYS, VALUES, max_size=3), st.lists(KEYS, max_size=2)), max_size=8)


@settings(max_examples=40)
@given(merges=MERGES)
def test_merges_add_up_as_those_of_a_dictionary(every_backend: StateStore, merges: list[Any]) -> None:
    """workflows W-26."""
    run_id = started(every_backend).id
    model: dict[str, Any] = {}
    for patch, remove in merges:
        every_backend.workflows.runs.merge_scratch(run_id, patch, remove=remove)
        model = {key: value for key, value in {**model, **patch}.items() if key not in remove}
        assert every_backend.workflows.runs.get(run_id).scratch == model


def test_a_patch_that_cannot_be_stored_changes_nothing_of_its_phase(store: StateStore) -> None:
    """workflows W-25: one transaction."""
    run = started(store)
    with pytest.raises(StateError):
        store.workflows.runs.append_phase(run.id, PhaseEntry("build", True), scratch={"a": "x" * LIMIT})
    assert store.workflows.runs.get(run.id) == run
