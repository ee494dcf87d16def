"""Questions that nobody answers in time, seen by whoever looks for runs to drive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.workflows.asking import WHO
from support.workflows.crew import Crew
from support.workflows.steps import PLAN, Raw, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Question

HOUR = timedelta(hours=1)


def gated(store: Any, until: datetime, **given: Any) -> str:
    """A run that waits at a gate, which lets it go on when nobody answers."""
    run_id = started(store, **given).id
    store.workflows.approvals.pause(run_id, replace(PLAN, expires_at=until, on_reject="resume"))
    return run_id


def asking(store: Any, until: datetime, **given: Any) -> str:
    """A run that waits for a person."""
    run_id = started(store, **given).id
    store.workflows.human_requests.pause(run_id, replace(WHO, expires_at=until))
    return run_id


def failing(store: Any, until: datetime, **given: Any) -> str:
    """A run that fails when nobody answers."""
    run_id = started(store, **given).id
    question: Question = replace(WHO, expires_at=until, on_expiry="fail")
    store.workflows.human_requests.pause(run_id, question)
    return run_id


#: What finds a run that may be taken, and how: each returns the ids of those it found.
LOOKS: dict[str, Callable[[Any, str], list[str]]] = {
    "list_claimable": lambda flows, _: [found.run_id for found in flows.claims.list_claimable()],
    "take_next": lambda flows, _: [claim.run_id for claim in flows.claims.take_next(owner="a")],
    "take": lambda flows, run_id: [flows.claims.take(run_id, owner="a").run_id],
    "wait": lambda flows, run_id: [run_id] * flows.claims.wait(timeout=0),
    "queue.wait": lambda flows, run_id: [run_id] * flows.queue.wait(cap=1, timeout=0, claimable=True),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
@pytest.mark.parametrize("asked", [gated, asking])
def test_a_run_whose_question_is_overdue_is_found_by_whoever_looks(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, asked: Any, look: Any
) -> None:
    """workflows W-141: nobody has to call `expire_due` first, and nothing is counted."""
    run_id = asked(store, frozen_clock.now() + HOUR)
    frozen_clock.advance(HOUR)
    assert look(store.workflows, run_id) == [run_id]
    run = store.workflows.runs.get(run_id)
    assert (run.status, run.status_reason, run.restart_count) == ("running", "run.resumed.gate", 0)
    raw.check_history(run_id)


@pytest.mark.parametrize("look", ["list_claimable", "take_next", "wait", "give_up"])
def test_a_run_that_an_expiry_fails_ends_for_whoever_looks(
    store: StateStore, frozen_clock: FrozenClock, look: str
) -> None:
    """workflows W-141."""
    run_id = failing(store, frozen_clock.now() + HOUR)
    frozen_clock.advance(HOUR)
    looks: dict[str, Any] = {**LOOKS, "give_up": lambda flows, _: list(flows.claims.give_up())}
    assert looks[look](store.workflows, run_id) == []
    assert store.workflows.runs.get(run_id).status == "failed"


def test_taking_a_run_that_its_expiry_fails_is_refused_and_leaves_it_failed(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-141: the refusal undoes no expiry."""
    run_id = failing(store, frozen_clock.now() + HOUR)
    frozen_clock.advance(HOUR)
    with pytest.raises(Conflict) as caught:
        store.workflows.claims.take(run_id, owner="a")
    assert (caught.value.code, caught.value.details["found"]) == ("run_status", "failed")
    assert store.workflows.runs.get(run_id).status == "failed"


def test_a_run_with_another_question_that_blocks_it_goes_on_waiting(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-85, W-141."""
    run_id = gated(store, frozen_clock.now() + HOUR)
    other = store.workflows.approvals.create(run_id, replace(PLAN, gate="other"))
    raw("UPDATE workflow_approvals SET blocks_run = ?", True)
    frozen_clock.advance(HOUR)
    found = store.workflows.claims.list_claimable().items
    assert other.status == "pending"
    assert found == ()


def test_questions_of_other_workflows_are_left_to_their_service(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-125, W-141."""
    for name in ("ours", "theirs"):
        gated(store, frozen_clock.now() + HOUR, workflow_name=name)
    frozen_clock.advance(HOUR)
    flows = store.workflows
    assert flows.claims.take_next(owner="a", workflow_names=[]) == ()
    assert not flows.claims.wait(timeout=0, workflow_names=["nobody's"])
    assert raw("SELECT DISTINCT status FROM workflow_approvals") == [("pending",)]
    [found] = flows.claims.list_claimable(workflow_names=["ours"])
    assert found.workflow_name == "ours"
    assert sorted(raw("SELECT status FROM workflow_approvals")) == [("expired",), ("pending",)]


def test_a_view_and_a_reader_leave_overdue_questions_as_they_are(
    every_backend: StateStore, raw: Raw, database: Database
) -> None:
    """workflows W-141."""
    gated(every_backend, database.clock.now() + HOUR)
    database.clock.advance(HOUR)
    with every_backend.view() as view:
        assert view.workflows.claims.list_claimable().items == ()
    reader = database.open(read_only=True)
    assert reader.workflows.claims.list_claimable().items == ()
    assert not reader.workflows.claims.wait(timeout=0)
    assert raw("SELECT status FROM workflow_approvals") == [("pending",)]


def test_an_expiry_in_a_transaction_is_undone_with_it(every_backend: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-141, case 55."""
    run_id = gated(every_backend, database.clock.now() + HOUR)
    database.clock.advance(HOUR)
    with undone(every_backend) as tx:
        assert [claim.run_id for claim in tx.workflows.claims.take_next(owner="a")] == [run_id]
    assert raw("SELECT status FROM workflow_approvals") == [("pending",)]
    assert every_backend.workflows.runs.get(run_id).status == "paused"


@pytest.fixture
def today(fresh_database: Database) -> Iterator[StateStore]:
    """A store whose clock goes on."""
    fresh_database.open().close()
    with StateStore.open(fresh_database.url, migrate=False) as store:
        yield store


@pytest.mark.parametrize("asked", [gated, asking])
def test_who_waits_is_woken_by_the_time_of_an_expiry(today: StateStore, asked: Any) -> None:
    """workflows W-129, W-141: nothing is written meanwhile that could tell."""
    began = time.monotonic()
    run_id = asked(today, datetime.now(UTC) + timedelta(seconds=0.4))
    assert not today.workflows.claims.wait(timeout=0)
    assert today.workflows.claims.wait(timeout=30)
    assert time.monotonic() - began < 15
    assert [claim.run_id for claim in today.workflows.claims.take_next(owner="a")] == [run_id]


WORKER = """
from lastlight_state import StateStore

url, me = arguments
with StateStore.open(url, migrate=False) as store:
    ready()
    store.workflows.claims.wait(timeout=1)  # in vain, where another has taken it by then
    result = [claim.run_id for claim in store.workflows.claims.take_next(owner=me)]
"""


def test_of_workers_in_several_processes_one_gets_the_run_of_an_overdue_question(
    fresh_database: Database, crew: Crew
) -> None:
    """workflows W-43, W-141: all of them look at once, one expiry is written."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    run_id = gated(store, fresh_database.clock.now() + HOUR)  # the clock of this store stands, long ago
    told = crew.race(WORKER, *([fresh_database.url, f"w-{n}"] for n in range(3)))
    taken = [each for found in told for each in found]
    assert taken in ([run_id], [])  # who looks while another locks the row passes it over
    if not taken:
        with StateStore.open(fresh_database.url, migrate=False) as last:
            assert [claim.run_id for claim in last.workflows.claims.take_next(owner="last")] == [run_id]
    assert [reason for *_, reason in raw.transitions(run_id)].count("run.resumed.gate") == 1
    raw.check_history(run_id)


@pytest.mark.logs("a sweep skipped run")
def test_a_question_that_cannot_be_expired_is_not_tried_at_each_look(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """workflows W-21, W-141: and does not wake who waits."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    run_id = gated(store, sqlite_database.clock.now() + HOUR)
    raw("DROP TRIGGER workflow_runs_context_is_immutable")
    raw("UPDATE workflow_runs SET context = '{broken' WHERE id = ?", run_id)
    sqlite_database.clock.advance(HOUR)
    assert not store.workflows.claims.wait(timeout=0.5, poll_interval=0.01)
    assert len([each for each in caplog.records if run_id in each.getMessage()]) <= 4


@pytest.mark.logs("passed over a row that cannot be read")
@pytest.mark.parametrize("look", ["list_claimable", "take_next", "wait"])
def test_an_overdue_question_whose_id_cannot_be_read_stops_no_look_for_runs(
    sqlite_database: Database, look: str
) -> None:
    """workflows W-21, W-141: other runs are found, among them those of other overdue questions."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    until = sqlite_database.clock.now() + HOUR
    damaged, sound = gated(store, until), gated(store, until)
    raw("UPDATE workflow_approvals SET id = x'00ff' WHERE workflow_run_id = ?", damaged)
    sqlite_database.clock.advance(HOUR)
    assert LOOKS[look](store.workflows, sound) == [sound]
