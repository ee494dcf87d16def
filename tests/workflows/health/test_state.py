"""How a run stands, derived from facts alone: every state, every block, every complaint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state.workflows import Blocked, NodeRef
from lastlight_state.workflows.health.state import Facts, PendingQuestions, derive, is_abandoned
from lastlight_state.workflows.words import LIVE, TERMINAL

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK, MINUTE = timedelta(milliseconds=1), timedelta(minutes=1)
BEFORE, AFTER = NOW - TICK, NOW + TICK
GRACE = timedelta(seconds=30)

GATE = PendingQuestions("approval", "a-1", NodeRef("review", 2), "Review", NOW - 2 * MINUTE, None)
REQUEST = PendingQuestions("human_request", "h-1", NodeRef("ask"), None, NOW - MINUTE, AFTER, first_expiry=AFTER)

HELD: dict[str, Any] = {"claim_owner": "w-1", "lease_expires_at": NOW}
LOST = {**HELD, "lease_expires_at": BEFORE}
STRANGER: dict[str, Any] = {"transition_seq": 0, "updated_at": NOW - GRACE}


def facts(status: str = "running", **given: Any) -> Facts:
    basis: dict[str, Any] = {"workflow_name": "w", "started_at": NOW - MINUTE, "updated_at": NOW - MINUTE}
    return Facts(status=status, **{**basis, **given})


def dead(owner: str) -> bool:
    return False


def alive(owner: str) -> bool:
    assert owner == "w-1"
    return True


STATES: list[tuple[str, Facts]] = [
    *((word, facts(word)) for word in TERMINAL),
    ("queued", facts("queued")),
    ("queued", facts("queued", wake_at=NOW)),
    ("delayed", facts("queued", wake_at=AFTER)),
    ("waiting_approval", facts("paused", pause_reason="gate", questions=(GATE,))),
    ("waiting_approval", facts("paused", questions=(REQUEST, GATE))),
    ("waiting_person", facts("paused", pause_reason="gate", questions=(REQUEST,))),
    ("waiting_timer", facts("paused", pause_reason="timer", wake_at=AFTER, questions=(GATE,))),
    ("waiting_signal", facts("paused", pause_reason="signal", waiting_for="s")),
    ("paused", facts("paused", pause_reason="operator", questions=(GATE,))),
    ("paused", facts("paused")),
    ("paused", facts("paused", pause_reason="a newer one")),
    ("offered", facts()),
    ("offered", facts(cancel_requested_at=BEFORE)),
    ("running", facts(**HELD)),
    ("running", facts(**{**HELD, "lease_expires_at": NOW + timedelta(days=9)})),
    ("running", facts(lease_expires_at=NOW)),
    ("running", facts(**LOST, wake_at=AFTER)),
    ("running", facts(**STRANGER)),
    ("running", facts(claim_owner="w-1")),
    ("running", facts(**{**STRANGER, "updated_at": NOW - GRACE - TICK, "claim_owner": "w-1"})),
    ("stale", facts(**{**STRANGER, "updated_at": NOW - GRACE - TICK})),
    ("stale", facts(**LOST)),
    ("orphaned", facts(lease_expires_at=BEFORE)),
    ("orphaned", facts(lease_expires_at=BEFORE, transition_seq=0)),
    ("stopping", facts(**HELD, cancel_requested_at=BEFORE)),
    ("stopping", facts(**LOST, cancel_requested_at=BEFORE)),
    ("unknown", facts("hibernating")),
]


@with_each(("state", "stored"), STATES)
def test_a_state_follows_from_what_is_stored(state: str, stored: Facts) -> None:
    """workflows W-97, case 58."""
    derived = derive(stored, NOW)
    assert (derived.status, derived.state, derived.computed_at) == (stored.status, state, NOW)


def test_an_owner_that_lives_is_busy_not_silent() -> None:
    """workflows W-97, case 58: it is asked about only when its lease is over."""
    assert derive(facts(**LOST), NOW, alive).state == "busy"
    assert derive(facts(**LOST), NOW, alive).unhealthy == ()
    assert derive(facts(**LOST), NOW, dead).state == "stale"

    def never(owner: str) -> bool:
        raise AssertionError(owner)

    for stored in (facts(**HELD), facts(), facts(lease_expires_at=BEFORE), facts("paused"), facts("failed", **LOST)):
        derive(stored, NOW, never)


BLOCKS: list[tuple[Blocked | None, Facts]] = [
    (None, facts("failed")),
    (None, facts(**HELD, questions=(GATE,))),
    (None, facts("paused")),
    (None, facts("hibernating")),
    (Blocked(kind="queue", since=BEFORE), facts("queued", queued_at=BEFORE)),
    (Blocked(kind="timer", since=BEFORE, until=AFTER), facts("queued", queued_at=BEFORE, wake_at=AFTER)),
    (
        Blocked(kind="workflow_disabled", id="w", since=BEFORE),
        facts("queued", queued_at=NOW, wake_at=AFTER, disabled_since=BEFORE),
    ),
    (
        Blocked(kind="approval", id="a-1", node=GATE.node, label="Review", since=GATE.asked_at, count=2),
        facts("paused", status_since=NOW, questions=(REQUEST, GATE)),
    ),
    (
        Blocked(kind="human_request", id="h-1", node=REQUEST.node, since=REQUEST.asked_at, until=AFTER),
        facts("paused", pause_reason="gate", questions=(REQUEST,)),
    ),
    (
        Blocked(kind="timer", since=BEFORE, until=AFTER),
        facts("paused", pause_reason="timer", wake_at=AFTER, status_since=BEFORE),
    ),
    (
        Blocked(kind="signal", id="s", label="c", since=BEFORE, until=AFTER),
        facts("paused", pause_reason="signal", waiting_for="s", correlation_id="c", wake_at=AFTER, status_since=BEFORE),
    ),
    (Blocked(kind="operator", since=BEFORE), facts("paused", pause_reason="operator", status_since=BEFORE)),
    (Blocked(kind="worker", since=BEFORE), facts(status_since=BEFORE)),
    (Blocked(kind="worker", id="w-1", since=BEFORE), facts(**LOST)),
    (Blocked(kind="worker", since=BEFORE), facts(lease_expires_at=BEFORE)),
    (Blocked(kind="timer", since=BEFORE, until=AFTER), facts(wake_at=AFTER, status_since=BEFORE)),
]


@with_each(("blocked", "stored"), BLOCKS)
def test_what_a_run_waits_for(blocked: Blocked | None, stored: Facts) -> None:
    """workflows W-98."""
    assert derive(stored, NOW).blocked == blocked


DUE = PendingQuestions("approval", "a-2", None, None, NOW - MINUTE, NOW, first_expiry=NOW)
SOON = PendingQuestions("approval", "a-2", None, None, NOW - MINUTE, AFTER, first_expiry=AFTER)
LONG, QUARTER = timedelta(seconds=60), timedelta(minutes=15)

COMPLAINTS: list[tuple[set[str], Facts]] = [
    (set(), facts(**HELD)),
    ({"lease_expired"}, facts(**LOST)),
    ({"lease_expired", "restart_limit"}, facts(**LOST, restart_count=3)),
    (set(), facts(**HELD, restart_count=3)),
    (set(), facts(restart_count=3)),
    ({"never_claimed"}, facts(lease_expires_at=BEFORE)),
    ({"never_claimed"}, facts(**{**STRANGER, "updated_at": NOW - GRACE - TICK})),
    ({"deadline_passed"}, facts(**HELD, deadline_at=NOW)),
    (set(), facts(**HELD, deadline_at=AFTER)),
    ({"deadline_passed"}, facts("queued", deadline_at=BEFORE)),
    (set(), facts("succeeded", deadline_at=BEFORE)),
    ({"gate_expired"}, facts("paused", questions=(DUE,))),
    (set(), facts("paused", questions=(SOON,))),
    ({"gate_expired"}, facts(**HELD, questions=(DUE, REQUEST))),
    ({"cancel_ignored"}, facts(**HELD, cancel_requested_at=NOW - LONG - TICK)),
    (set(), facts(**HELD, cancel_requested_at=NOW - LONG)),
    ({"execution_silent"}, facts(**HELD, silent_since=NOW - QUARTER - TICK)),
    (set(), facts(**HELD, silent_since=NOW - QUARTER)),
    (set(), facts("paused", questions=(GATE,), silent_since=NOW - LONG * 99)),
    ({"stuck_paused"}, facts("paused")),
    ({"stuck_paused"}, facts("paused", pause_reason="gate")),
    ({"stuck_paused"}, facts("paused", pause_reason="timer")),
    ({"stuck_paused"}, facts("paused", pause_reason="signal")),
    (set(), facts("paused", pause_reason="gate", wake_at=AFTER)),
    (set(), facts("paused", pause_reason="timer", wake_at=BEFORE)),
    (set(), facts("paused", pause_reason="signal", waiting_for="s")),
    (set(), facts("paused", pause_reason="operator")),
    (set(), facts("paused", pause_reason="a newer one")),
    (set(), facts("hibernating", deadline_at=BEFORE, **LOST)),
    (set(), facts("failed", questions=(DUE,))),
    (
        set(),
        facts("paused", pause_reason="operator", cancel_requested_at=NOW - LONG * 99, silent_since=NOW - LONG * 99),
    ),
    (set(), facts(**HELD, pause_reason="timer")),
    (set(), facts("paused", pause_reason="timer", wake_at=AFTER, waiting_for=None)),
]


@with_each(("words", "stored"), COMPLAINTS)
def test_what_is_wrong_with_a_run(words: set[str], stored: Facts) -> None:
    """workflows W-98, case 58."""
    assert set(derive(stored, NOW).unhealthy) == words


def test_a_lease_that_ends_now_is_alive_and_a_millisecond_later_is_not() -> None:
    """workflows W-40."""
    held = facts(**HELD)
    assert (derive(held, NOW).state, derive(held, AFTER).state) == ("running", "stale")
    assert not is_abandoned(held, NOW)
    assert is_abandoned(held, AFTER)


_moments = st.integers(-120, 120).map(lambda seconds: NOW + timedelta(seconds=seconds))
_times = st.none() | _moments
_questions = st.builds(
    PendingQuestions,
    kind=st.sampled_from(["approval", "human_request"]),
    id=st.sampled_from("ab"),
    node=st.none() | st.just(NodeRef("n")),
    label=st.none(),
    asked_at=_moments,
    expires_at=_times,
    count=st.integers(1, 3),
    first_expiry=_times,
)
ANY_FACTS = st.builds(
    Facts,
    status=st.sampled_from([*LIVE, *TERMINAL, "hibernating"]),
    workflow_name=st.just("w"),
    started_at=_moments,
    updated_at=_moments,
    transition_seq=st.integers(0, 2),
    restart_count=st.integers(0, 4),
    claim_owner=st.none() | st.just("w-1"),
    lease_expires_at=_times,
    wake_at=_times,
    pause_reason=st.sampled_from([None, "gate", "timer", "signal", "operator", "newer"]),
    waiting_for=st.none() | st.just("s"),
    cancel_requested_at=_times,
    deadline_at=_times,
    queued_at=_times,
    status_since=_times,
    disabled_since=_times,
    silent_since=_times,
    questions=st.lists(_questions, max_size=2).map(tuple),
)
OF_STATUS = {
    "queued": {"queued", "delayed"},
    "paused": {"waiting_approval", "waiting_person", "waiting_timer", "waiting_signal", "paused"},
    "running": {"running", "offered", "stopping", "stale", "busy", "orphaned"},
    "hibernating": {"unknown"},
}
COMPLAINTS_OF = {
    "queued": {"deadline_passed", "gate_expired"},
    "paused": {"deadline_passed", "gate_expired", "stuck_paused"},
    "running": {
        *("lease_expired", "never_claimed", "restart_limit", "deadline_passed", "gate_expired"),
        *("cancel_ignored", "execution_silent"),
    },
}


@given(stored=ANY_FACTS, owner_alive=st.sampled_from([None, alive, dead]))
def test_whatever_is_stored_has_one_state_that_fits_its_status(stored: Facts, owner_alive: Any) -> None:
    """workflows W-97, W-98."""
    derived = derive(stored, NOW, owner_alive)
    assert derived.state in OF_STATUS.get(stored.status, {stored.status})
    assert set(derived.unhealthy) <= COMPLAINTS_OF.get(stored.status, set())
    assert len(set(derived.unhealthy)) == len(derived.unhealthy)
    assert not {"lease_expired", "never_claimed"} <= set(derived.unhealthy)
    if derived.blocked is None and stored.status == "paused":
        assert stored.pause_reason == "newer" or derived.unhealthy
    if stored.status not in LIVE:
        assert (derived.blocked, derived.unhealthy) == (None, ())
    if derived.state in ("stale", "orphaned"):
        assert is_abandoned(stored, NOW)
        assert {"lease_expired", "never_claimed"} & set(derived.unhealthy)
        assert derived.blocked is not None
        assert derived.blocked.kind == "worker"
    assert type(derived).model_validate_json(derived.model_dump_json()) == derived


@given(stored=ANY_FACTS, later=st.integers(0, 500))
def test_an_abandoned_run_stays_abandoned_until_somebody_writes(stored: Facts, later: int) -> None:
    """workflows W-40."""
    if is_abandoned(stored, NOW):
        assert is_abandoned(stored, NOW + timedelta(seconds=later))
