"""Which runs may be claimed: each row of the table differs from its neighbours in one column."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, LostRace
from lastlight_state.testing import FrozenClock

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
PAST, AHEAD = -SECOND, SECOND

LOST: dict[str, Any] = {"claim_owner": "a", "lease_expires_at": PAST}
HELD: dict[str, Any] = {"claim_owner": "a", "lease_expires_at": AHEAD}
GRACE: dict[str, Any] = {"lease_expires_at": AHEAD}
FOREIGN: dict[str, Any] = {"transition_seq": 0, "updated_at": -DAY}
DUE: dict[str, Any] = {"status": "paused", "wake_at": PAST}
SPENT: dict[str, Any] = {**LOST, "restart_count": 3}
STOPPED: dict[str, Any] = {"cancel_requested_at": PAST}

#: The columns of a run, the kind by which it is listed, and how another worker fares who takes it. Times are distances
#: from now.
RUNS: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "offered": ({}, "offered", "free"),
    "offered long ago": ({"updated_at": -DAY}, "offered", "free"),
    "offered at its limit": ({"restart_count": 3}, "offered", "free"),
    "offered since its time came": ({"wake_at": PAST}, "offered", "free"),
    "put off": ({"wake_at": AHEAD}, None, "held"),
    "owned without a lease": ({"claim_owner": "a"}, None, "held"),
    "held": (HELD, None, "held"),
    "held, woken long ago": ({**HELD, "wake_at": PAST}, None, "held"),
    "in its grace": (GRACE, None, "free"),
    "in its grace and put off": ({**GRACE, "wake_at": AHEAD}, None, "held"),
    "queued in its grace": ({**GRACE, "status": "queued"}, None, "run_status"),
    "abandoned": (LOST, "abandoned", "restart"),
    "offered since its grace was over": ({"lease_expires_at": PAST}, "offered", "free"),
    "offered since its grace was over, at its limit": (
        {"lease_expires_at": PAST, "restart_count": 3},
        "offered",
        "free",
    ),
    "offered and to be cancelled": (STOPPED, "offered", "free"),
    "in its grace, to be cancelled": ({**GRACE, **STOPPED}, None, "free"),
    "abandoned and put off": ({**LOST, "wake_at": AHEAD}, None, "held"),
    "queued with an old lease": ({**LOST, "status": "queued"}, None, "run_status"),
    "ended with an old lease": ({**LOST, "status": "failed"}, None, "run_status"),
    "foreign and silent": (FOREIGN, "abandoned", "restart"),
    "foreign and alive": ({**FOREIGN, "updated_at": PAST}, None, "held"),
    "foreign and put off": ({**FOREIGN, "wake_at": AHEAD}, None, "held"),
    "foreign and held": ({**FOREIGN, **HELD}, None, "held"),
    "foreign with an owner": ({**FOREIGN, "claim_owner": "a"}, None, "held"),
    "foreign and queued": ({**FOREIGN, "status": "queued"}, None, "run_status"),
    "foreign and paused": ({**FOREIGN, "status": "paused"}, None, "run_status"),
    "foreign and ended": ({**FOREIGN, "status": "succeeded"}, None, "run_status"),
    "due": (DUE, "due", "free"),
    "due at its limit": ({**DUE, "restart_count": 3}, "due", "free"),
    "due with an old lease": ({**DUE, **LOST}, "due", "free"),
    "paused until later": ({**DUE, "wake_at": AHEAD}, None, "run_status"),
    "paused without a time": ({"status": "paused"}, None, "run_status"),
    "queued until now": ({**DUE, "status": "queued"}, None, "run_status"),
    "ended after a pause": ({**DUE, "status": "cancelled"}, None, "run_status"),
    "at its limit": (SPENT, "abandoned at its limit", "restart_limit"),
    "at its limit and put off": ({**SPENT, "wake_at": AHEAD}, None, "held"),
    "held at its limit": ({**SPENT, **HELD}, None, "held"),
    "at its limit, to be cancelled": ({**SPENT, **STOPPED}, "abandoned", "free"),
    "to be cancelled": ({**LOST, **STOPPED}, "abandoned", "free"),
    "held, to be cancelled": ({**HELD, **STOPPED}, None, "held"),
}


@pytest.fixture
def stored(raw: Raw, frozen_clock: FrozenClock) -> None:
    """One row for each of these runs."""
    now = frozen_clock.now()
    row = {
        "workflow_name": "deploy",
        "trigger_id": "t",
        "current_phase": "plan",
        "status": "running",
        "started_at": now - DAY,
        "updated_at": now - SECOND,
        "transition_seq": 5,
        "max_restarts": 3,
        "restart_count": 0,
    }
    for name, (columns, _, _) in RUNS.items():
        given = {**row, "id": name, **columns}
        values = [now + value if isinstance(value, timedelta) else value for value in given.values()]
        raw(f"INSERT INTO workflow_runs ({', '.join(given)}) VALUES ({', '.join('?' * len(given))})", *values)


@pytest.mark.usefixtures("stored")
def test_a_row_alone_tells_whether_its_run_is_listed_and_how_a_take_ends(store: StateStore) -> None:
    """workflows W-40, W-41, W-42, W-49."""
    page = store.workflows.claims.list_claimable(limit=100)
    kinds = {run.run_id: run.kind + (" at its limit" if run.at_limit else "") for run in page}
    assert kinds == {name: kind for name, (_, kind, _) in RUNS.items() if kind is not None}
    assert {name: _taken(store, name) for name in RUNS} == {name: how for name, (_, _, how) in RUNS.items()}


@pytest.mark.usefixtures("stored")
def test_the_next_runs_are_the_listed_ones_that_may_be_taken(store: StateStore) -> None:
    """workflows W-43."""
    claims = store.workflows.claims.take_next(owner="b", limit=100)
    counted = {claim.run_id: claim.restart_count - RUNS[claim.run_id][0].get("restart_count", 0) for claim in claims}
    assert counted == {
        name: int(how == "restart") for name, (_, kind, how) in RUNS.items() if kind and how != "restart_limit"
    }


@pytest.mark.usefixtures("stored")
def test_only_runs_that_nobody_holds_are_given_up_and_others_take_no_place(store: StateStore) -> None:
    """workflows W-47: with a limit below the number of runs that are at theirs."""
    spent = {"at its limit", "at its limit, to be cancelled", "to be cancelled", "offered and to be cancelled"}
    ended = [run_id for _ in range(5) for run_id in store.workflows.claims.give_up(limit=1)]
    assert (len(ended), set(ended)) == (4, spent)
    statuses = {run_id: store.workflows.runs.get(run_id).status for run_id in spent}
    assert statuses == {**dict.fromkeys(spent, "cancelled"), "at its limit": "failed"}


def _taken(store: StateStore, run_id: str) -> str:
    before = store.workflows.runs.get(run_id).restart_count
    try:
        claim = store.workflows.claims.take(run_id, owner="b")
    except LostRace:
        return "held"
    except Conflict as error:
        return error.code
    return "restart" if claim.restart_count > before else "free"


@pytest.mark.usefixtures("stored")
def test_a_holder_takes_again_only_a_running_run_whose_lease_lasts(store: StateStore) -> None:
    """workflows W-41: its other runs stay as they are."""
    held = {"held", "held, woken long ago", "foreign and held", "held at its limit", "held, to be cancelled"}
    for name in sorted(held):
        assert store.workflows.claims.take(name, owner="a").epoch == 1
        assert store.workflows.runs.get(name).claim_epoch == 1
    with pytest.raises(Conflict) as caught:
        store.workflows.claims.take("at its limit", owner="a")
    assert caught.value.code == "restart_limit"
