"""Loops move on once for each iteration, and hand their text on with a pointer that never leads nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from support.sent import recorded
from support.workflows.crew import Crew
from support.workflows.plans import plan_of
from support.workflows.steps import Raw, all_pages, started, together

from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, NotFound, PayloadTooLarge, StaleVersion
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Loop
from lastlight_state.workflows.executions.lists import FIND_CARRIED


def stands(loop: Loop | None) -> tuple[int, bool] | None:
    return None if loop is None else (loop.iteration, loop.done)


def test_a_loop_is_put_found_and_rewound(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-75."""
    loops, run = store.workflows.loops, started(store)
    assert loops.find(run.id, "fix") is None
    loop = loops.put(run.id, "fix", iteration=3)
    assert (loop.run_id, loop.loop_id, loop.updated_at) == (run.id, "fix", frozen_clock.now())
    assert loops.find(run.id, "fix") == loop
    assert Loop.model_validate_json(loop.model_dump_json()) == loop
    frozen_clock.advance(seconds=1)
    assert stands(loops.put(run.id, "fix", iteration=1, done=True)) == (1, True)
    rewound = loops.put(run.id, "fix", iteration=0)
    assert (stands(rewound), rewound.updated_at) == ((0, False), frozen_clock.now())


def test_a_loop_advances_from_the_iteration_that_is_expected(store: StateStore) -> None:
    """workflows W-75: a repeat after a crash skips no iteration."""
    loops, run = store.workflows.loops, started(store)
    loops.put(run.id, "fix", iteration=2)
    assert stands(loops.advance(run.id, "fix", expected=2)) == (3, False)
    for expected in (2, 0, 7):
        with pytest.raises(StaleVersion) as caught:
            loops.advance(run.id, "fix", expected=expected)
        assert (caught.value.expected, caught.value.found) == (expected, 3)
    assert stands(loops.find(run.id, "fix")) == (3, False)
    loops.put(run.id, "new", iteration=0)
    assert stands(loops.advance(run.id, "new", expected=0)) == (1, False)


def test_after_the_last_number_that_a_database_holds_there_is_no_iteration(store: StateStore) -> None:
    """workflows W-75: SQLite would go on with a float."""
    loops, run = store.workflows.loops, started(store)
    loops.put(run.id, "fix", iteration=2**63 - 2)
    last = loops.advance(run.id, "fix", expected=2**63 - 2)
    assert last.iteration == 2**63 - 1
    with pytest.raises(InvalidValue):
        loops.advance(run.id, "fix", expected=last.iteration)
    assert loops.find(run.id, "fix") == last


def test_a_loop_without_a_row_is_in_its_first_iteration(store: StateStore) -> None:
    """workflows W-75."""
    loops, run = store.workflows.loops, started(store)
    with pytest.raises(StaleVersion) as caught:
        loops.advance(run.id, "fix", expected=1)
    assert (caught.value.found, loops.find(run.id, "fix")) == (0, None)
    assert stands(loops.advance(run.id, "fix", expected=0)) == (1, False)
    with pytest.raises(StaleVersion) as repeated:
        loops.advance(run.id, "fix", expected=0)
    assert repeated.value.found == 1
    assert stands(loops.finish(run.id, "other")) == (0, True)


def test_a_loop_that_is_done_advances_no_more(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-75: done is repeat-safe, and undone by a put alone."""
    loops, run = store.workflows.loops, started(store)
    loops.advance(run.id, "fix", expected=0)
    done = loops.finish(run.id, "fix")
    assert stands(done) == (1, True)
    frozen_clock.advance(seconds=1)
    assert loops.finish(run.id, "fix") == done
    for expected in (0, 1):
        with pytest.raises(Conflict) as caught:
            loops.advance(run.id, "fix", expected=expected)
        assert caught.value.code == "loop_done"
    loops.put(run.id, "fix", iteration=1)
    assert stands(loops.advance(run.id, "fix", expected=1)) == (2, False)


@pytest.mark.parametrize("first", [0, 2])
def test_of_several_who_advance_one_does(every_backend: StateStore, first: int) -> None:
    """workflows W-75: also of those that find no row."""
    loops, run = every_backend.workflows.loops, started(every_backend)
    if first:
        loops.put(run.id, "fix", iteration=first)
    told = together([lambda: loops.advance(run.id, "fix", expected=first)] * 6)
    assert [stands(each) for each in told if isinstance(each, Loop)] == [(first + 1, False)]
    assert [each.found for each in told if isinstance(each, StaleVersion)] == [first + 1] * 5


def test_an_advance_is_one_statement(database: Database) -> None:
    """workflows W-75, W-102."""
    with recorded(database) as (store, sent):
        run = started(store)
        for expected in (0, 1):
            sent.clear()
            store.workflows.loops.advance(run.id, "fix", expected=expected)
            assert len(sent) == 1


def test_loops_are_listed_by_id(store: StateStore) -> None:
    """workflows W-75."""
    loops, run = store.workflows.loops, started(store)
    for loop_id in ("b", "a", "B"):
        loops.put(run.id, loop_id, iteration=1)
    loops.put(started(store).id, "c", iteration=1)
    assert [loop.loop_id for loop in loops.list(run.id)] == ["B", "a", "b"]
    assert [loop.loop_id for loop in all_pages(lambda **given: loops.list(run.id, limit=1, **given))] == ["B", "a", "b"]
    assert list(loops.list(started(store).id)) == []


def writes(store: StateStore, run_id: str, execution_id: str, claim: Any = None) -> list[Any]:
    loops = store.workflows.loops
    return [
        lambda: loops.put(run_id, "fix", iteration=1, claim=claim),
        lambda: loops.advance(run_id, "fix", expected=1, claim=claim),
        lambda: loops.finish(run_id, "fix", claim=claim),
        lambda: loops.carry(run_id, "fix", execution_id=execution_id, text="text", claim=claim),
    ]


def test_only_the_holder_of_a_live_run_writes_its_loops(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-18, case 1."""
    loops, run = store.workflows.loops, started(store)
    execution_id = raw.execution(run.id)
    old = raw.hold(run.id)
    held = raw.hold(run.id, "worker-2")
    for claim in (None, old, raw.hold(started(store).id)):
        for write in writes(store, run.id, execution_id, claim):
            with pytest.raises(ClaimLost):
                write()
    assert (list(loops.list(run.id)), store.workflows.runs.get(run.id).scratch) == ([], None)
    for write in writes(store, run.id, execution_id, held):
        write()
    assert (stands(loops.find(run.id, "fix")), loops.find_output(run.id, "fix")) == ((2, True), "text")
    raw("UPDATE workflow_runs SET claim_owner = NULL")
    store.workflows.runs.finish(run.id, "succeeded")
    for write in writes(store, run.id, execution_id):
        with pytest.raises(Conflict, match="succeeded"):
            write()


def test_a_run_that_is_not_there_has_no_loops(store: StateStore, raw: Raw) -> None:
    """workflows W-13."""
    execution_id = raw.execution(started(store).id)
    for call in (*writes(store, "nobody", execution_id), lambda: store.workflows.loops.list("nobody")):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.kind, caught.value.key) == ("workflow_run", "nobody")
    assert store.workflows.loops.find("nobody", "fix") is None


def test_values_that_no_loop_has_are_refused(store: StateStore, raw: Raw) -> None:
    """workflows W-1, W-2, W-3."""
    loops, run = store.workflows.loops, started(store)
    execution_id = raw.execution(run.id)
    each: list[Any] = [
        lambda: loops.put(run.id, " ", iteration=1),
        lambda: loops.put(run.id, "x" * 257, iteration=1),
        lambda: loops.put(run.id, "fix", iteration=-1),
        lambda: loops.put(run.id, "fix", iteration=1, done=1),  # type: ignore[arg-type]
        lambda: loops.advance(run.id, "fix", expected=True),
        lambda: loops.carry(run.id, "\0", execution_id=execution_id, text="text"),
        lambda: loops.carry(run.id, "fix", execution_id=execution_id, text="\ud800"),
        lambda: loops.carry(run.id, "fix", execution_id=execution_id, text="text", state=[1]),  # type: ignore[arg-type]
        lambda: loops.carry(run.id, "fix", execution_id=execution_id, text="x" * (1024 * 1024 + 1)),
    ]
    for call in each:
        with pytest.raises(InvalidValue):
            call()
    assert (list(loops.list(run.id)), store.workflows.runs.get(run.id).scratch) == ([], None)


def test_an_iteration_hands_on_its_text_and_its_state(store: StateStore, raw: Raw) -> None:
    """workflows W-80: other members stay, and an empty text is a text."""
    loops = store.workflows.loops
    run = started(store, scratch={"fix": {"tries": 1, "kept": [1]}, "other": 2})
    for tries, text in enumerate(("first \u00e9 \U0001f4a1", ""), 2):
        execution_id = raw.execution(run.id)
        loops.carry(run.id, "fix", execution_id=execution_id, text=text, state={"tries": tries})
        pointed = {"tries": tries, "kept": [1], "lastOutputExecutionId": execution_id}
        assert store.workflows.runs.get(run.id).scratch == {"fix": pointed, "other": 2}
        assert loops.find_output(run.id, "fix") == store.workflows.executions.find_output(execution_id) == text


def test_an_execution_of_another_run_carries_nothing(store: StateStore, raw: Raw) -> None:
    """workflows W-80."""
    loops, run = store.workflows.loops, started(store)
    others = raw.execution(started(store).id)
    with pytest.raises(InvalidValue, match="execution_id"):
        loops.carry(run.id, "fix", execution_id=others, text="text")
    with pytest.raises(NotFound, match="execution"):
        loops.carry(run.id, "fix", execution_id="nobody", text="text")
    assert store.workflows.executions.find_output(others) is None
    assert store.workflows.runs.get(run.id).scratch is None


def test_a_state_that_scratch_cannot_hold_leaves_no_text_behind(store: StateStore, raw: Raw) -> None:
    """workflows W-80, W-3: both or neither."""
    loops, run = store.workflows.loops, started(store)
    execution_id = raw.execution(run.id)
    with pytest.raises(PayloadTooLarge, match="scratch"):
        loops.carry(run.id, "fix", execution_id=execution_id, text="text", state={"big": "x" * 65_536})
    assert store.workflows.executions.find_output(execution_id) is None


def test_what_leads_to_no_text_is_none(store: StateStore, raw: Raw) -> None:
    """workflows W-80: no run, key, object, pointer, execution or text."""
    run = started(
        store,
        scratch={
            "dangling": {"lastOutputExecutionId": "nobody", "lastOutput": "older"},
            "silent": {"lastOutputExecutionId": raw.execution(started(store).id)},
            "without": {"tries": 1},
            "null": None,
            "text": "lastOutput",
            "several": [{"lastOutput": "no"}],
        },
    )
    found = store.workflows.loops.find_output
    assert [found(run.id, key) for key in ("dangling", "silent", "without", "null", "text", "several", "no")] == [
        None
    ] * 7
    assert [found(started(store).id, "fix"), found("nobody", "fix")] == [None, None]
    for scratch in ("[1]", '"text"', "null"):
        raw("UPDATE workflow_runs SET scratch = ? WHERE id = ?", scratch, run.id)
        assert found(run.id, "0") is None


def test_a_text_that_an_older_program_left_in_scratch_is_found(store: StateStore, raw: Raw) -> None:
    """workflows W-80: until there is a pointer."""
    started(store, scratch={"fix": {"lastOutput": "of another run"}})
    loops, run = store.workflows.loops, started(store, scratch={"fix": {"lastOutput": "inline"}})
    assert loops.find_output(run.id, "fix") == "inline"
    loops.carry(run.id, "fix", execution_id=raw.execution(run.id), text="stored")
    assert loops.find_output(run.id, "fix") == "stored"


def test_a_loop_may_have_any_key(store: StateStore, raw: Raw) -> None:
    """workflows W-80."""
    loops, run = store.workflows.loops, started(store, scratch={"x": {"lastOutput": "wrong"}})
    for key in ('a"b', "it's", "$.x", "a.b", "[0]", "0", "\u00e9 \U0001f4a1", "%s:x", "y" * 256):
        loops.carry(run.id, key, execution_id=raw.execution(run.id), text=key)
        assert loops.find_output(run.id, key) == key


def test_a_text_is_found_in_one_round_trip_by_keys(database: Database) -> None:
    """workflows W-80, W-102: one row, one column."""
    with recorded(database) as (store, sent):
        run = started(store)
        execution = store.workflows.executions.start("deploy:fix", run_id=run.id)
        store.workflows.loops.carry(run.id, "fix", execution_id=execution.id, text="text")
        sent.clear()
        assert store.workflows.loops.find_output(run.id, "fix") == "text"
        assert len(sent) == 1
        plan = plan_of(database, store, FIND_CARRIED, {"run_id": run.id, "key": "fix"}, in_order=True)
        assert not plan.scans_the_table, plan


KILLED_AT_A_STATEMENT = """
import os, signal
from lastlight_state import StateStore

class Dying:
    def __init__(self, driver):
        self._driver = driver
    def execute(self, *statement):
        global left
        done = self._driver.execute(*statement)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    def __getattr__(self, name):
        return getattr(self._driver, name)

url, run_id, execution_id, left = arguments
ready()
child = os.fork()
if child == 0:
    store = StateStore.open(url, migrate=False)
    acquire = store.backend.acquire
    def acquire_dying(mode, checkout=None):
        checkout = acquire(mode, checkout)
        checkout.driver = Dying(checkout.driver)
        checkout.execute = checkout.driver.execute
        return checkout
    store.backend.acquire = acquire_dying
    store.workflows.loops.carry(run_id, "fix", execution_id=execution_id, text="text", state={"tries": 1})
    os._exit(0)
_, status = os.waitpid(child, 0)
result = "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
"""


def test_a_text_carried_by_a_process_that_is_killed_has_its_pointer_or_is_not_there(
    fresh_database: Database, crew: Crew
) -> None:
    """workflows W-80: killed after every statement in turn, the commit included."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    found: list[str] = []
    outcome: Any = "killed"
    while outcome == "killed":
        run = started(store)
        execution_id = raw.execution(run.id)
        [outcome] = crew.race(KILLED_AT_A_STATEMENT, [fresh_database.url, run.id, execution_id, len(found) + 1])
        scratch = store.workflows.runs.get(run.id).scratch
        text = store.workflows.executions.find_output(execution_id)
        assert (scratch, text) in (
            (None, None),
            ({"fix": {"tries": 1, "lastOutputExecutionId": execution_id}}, "text"),
        )
        found.append("neither" if text is None else "both")
        store.workflows.loops.carry(run.id, "fix", execution_id=execution_id, text="text", state={"tries": 1})
        assert store.workflows.loops.find_output(run.id, "fix") == "text"
    assert outcome == 0
    assert found == ["neither"] * (len(found) - 2) + ["both", "both"]  # killed right after the commit, and not at all
    assert len(found) > 4
