from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta, timezone
from typing import Any, cast

import pytest
from support.conversations.talk import begun
from support.stored_words import unguarded_words
from support.workflows.steps import Raw

from lastlight_state import AsyncStateStore, ClaimLost, InvalidValue, LostRace, NotFound, StateStore
from lastlight_state.conversations import (
    NewBranch,
    NewSession,
    Reason,
    SessionFilter,
    SessionPatch,
    SessionTimes,
)
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import FrozenClock, racing


def running(store: Any, session_id: str = "s", **given: Any) -> Any:
    return store.conversations.sessions.create(NewSession(session_id, status="running", **given))


def refused(call: Any) -> str | None:
    """The status that a lost race names."""
    with pytest.raises(LostRace) as caught:
        call()
    return caught.value.details["status"]  # type: ignore[no-any-return]


def test_a_status_goes_from_pending_to_running_to_its_end(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-2, CV-14, CV-15: status, times, history and feed are of one change."""
    c = every_backend.conversations
    session = c.sessions.create(NewSession("s"))
    assert (session.status, session.transition_seq, c.lifecycle.history("s").items) == (None, 0, ())
    c.lifecycle.transition("s", "pending")
    frozen_clock.advance(seconds=1)
    began = c.lifecycle.transition("s", "running", expect="pending")
    assert refused(lambda: c.lifecycle.transition("s", "pending")) == "running"
    frozen_clock.advance(seconds=1)
    why = Reason("run.failed.exit_code", "exit 3", {"code": 3}, source="agent", actor="worker-1")
    ended = c.lifecycle.transition("s", "failed", reason=why)
    stored = c.sessions.get("s")
    assert (stored.status, stored.status_reason, stored.transition_seq) == ("failed", why.code, 3)
    assert (stored.started_at, stored.last_message_at) == (began.created_at, began.created_at)
    assert (stored.ended_at, stored.updated_at, stored.ended_at_is_approximate) == (*[ended.created_at] * 2, False)
    assert c.lifecycle.history("s").items[0] == ended
    assert [(one.seq, one.previous_status, one.reason_code) for one in c.lifecycle.history("s")] == [
        (3, "running", "run.failed.exit_code"),
        (2, "pending", "run.started.ok"),
        (1, None, "run.pending.created"),
    ]
    assert (ended.evidence, ended.reason_summary, ended.actor, ended.source) == (
        {"code": 3},
        "exit 3",
        "worker-1",
        "agent",
    )


def test_a_session_made_with_a_status_has_a_history(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-12, CV-14: the end of one that ended unseen is what is known of it."""
    c = every_backend.conversations
    last = frozen_clock.now() - timedelta(hours=1)
    ended = c.sessions.create(NewSession("s", status="completed", times=SessionTimes(last_message_at=last)))
    assert (ended.ended_at, ended.ended_at_is_approximate, ended.status_reason) == (last, True, "run.completed.ok")
    [first] = c.lifecycle.history("s")
    assert (first.previous_status, first.status, first.seq) == (None, "completed", 1)
    told = SessionTimes(ended_at=last)
    exact = c.sessions.create(NewSession("t", status="failed", times=told, reason=Reason("legacy.imported")))
    assert (exact.ended_at, exact.ended_at_is_approximate) == (last, False)
    assert c.sessions.ensure(NewSession("t", status="failed")) == exact
    assert c.sessions.update("s", SessionPatch(ended_at=last)).ended_at_is_approximate is False


def test_the_end_of_a_change_is_the_time_that_is_given(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-14: with its zone, and for an end alone."""
    c = every_backend.conversations
    running(every_backend)
    then = frozen_clock.now() - timedelta(minutes=1)
    for status, wrong in (("failed", then.replace(tzinfo=None)), ("failed", "yesterday"), ("pending", then)):
        with pytest.raises(InvalidValue, match="ended_at"):
            c.lifecycle.transition("s", cast(Any, status), ended_at=cast(Any, wrong))
    c.lifecycle.transition("s", "failed", ended_at=then.astimezone(timezone(timedelta(hours=2))))
    stored = c.sessions.get("s")
    assert (stored.ended_at, stored.ended_at_is_approximate) == (then, False)
    assert (stored.ended_at or then).tzinfo is UTC


@pytest.mark.parametrize(("status", "seqs"), [("running", [3, 2, 1]), (None, [2, 1])])
def test_a_session_with_the_id_of_one_that_was_removed_continues_its_history(
    every_backend: StateStore, frozen_clock: FrozenClock, status: Any, seqs: list[int]
) -> None:
    """conversations CV-14, CV-15: a history outlives its session, and does not stand in the way of the next one."""
    c = every_backend.conversations
    c.sessions.create(NewSession("s", status="completed"))
    frozen_clock.advance(seconds=90 * 86_400)
    every_backend.maintenance.prune.run(PrunePolicy(keep_n=0))
    assert c.sessions.find("s") is None
    c.sessions.create(NewSession("s", status=status))
    reason = c.lifecycle.state("s").reason
    assert (None if reason is None else reason.status) == status
    c.lifecycle.transition("s", "failed")
    assert [one.seq for one in c.lifecycle.history("s")] == seqs


def test_a_status_is_explained_by_the_own_last_transition(every_backend: StateStore) -> None:
    """conversations CV-15: whatever another session has gone through, as often."""
    c = every_backend.conversations
    for name, status in (("s", "running"), ("t", "failed")):
        c.sessions.create(NewSession(name))
        c.lifecycle.transition(name, cast(Any, status))
    reasons = {name: state.reason for name, state in c.lifecycle.states(["s", "t"]).items()}
    assert {name: reason and reason.status for name, reason in reasons.items()} == {"s": "running", "t": "failed"}


def test_the_same_status_again_writes_nothing(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-14: whatever was expected; another end is refused with the present status."""
    c = every_backend.conversations
    running(every_backend)
    done = c.lifecycle.transition("s", "completed")
    frozen_clock.advance(seconds=1)
    stored = c.sessions.get("s")
    assert c.lifecycle.transition("s", "completed", expect="running") == done
    assert c.sessions.get("s") == stored
    assert refused(lambda: c.lifecycle.transition("s", "failed")) == "completed"
    assert refused(lambda: c.lifecycle.transition("s", "pending")) == "completed"
    assert c.lifecycle.try_transition("s", "running") is None


def test_the_same_status_again_is_the_own_change_of_the_session_or_branch(every_backend: StateStore) -> None:
    """conversations CV-14: not the later one of another session, or of another of its branches."""
    c = every_backend.conversations
    for name in ("s", "t"):
        begun = running(every_backend, name)
        for branch in ("a", "b"):
            c.branches.create(begun.id, NewBranch(id=f"{name}-{branch}"))
    of_session = [c.lifecycle.transition(name, "completed") for name in ("s", "t")]
    ids = [f"{name}-{branch}" for name in ("s", "t") for branch in ("a", "b")]
    of_branch = [c.lifecycle.transition(one[0], "completed", branch_id=one) for one in ids]
    assert [c.lifecycle.transition(name, "completed") for name in ("s", "t")] == of_session
    assert [c.lifecycle.transition(one[0], "completed", branch_id=one) for one in ids] == of_branch


def test_of_many_who_end_a_session_one_wins(every_backend: StateStore) -> None:
    """conversations CV-14, CV-15: the others find the same end, or lose."""
    lifecycle = every_backend.conversations.lifecycle
    running(every_backend)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: lifecycle.try_transition("s", ("completed", "failed")[n % 2]), range(12)))
    [winner] = {one for one in done if one is not None}
    history = lifecycle.history("s").items
    assert history[0] == winner
    assert len(history) == 2
    assert every_backend.conversations.sessions.get("s").status == winner.status


@pytest.mark.parametrize(
    ("expect", "wins"), [({None}, True), (None, True), ({"running"}, False), ((), False), ({"pending", None}, True)]
)
def test_a_change_expects_statuses(every_backend: StateStore, expect: Any, wins: bool) -> None:
    """conversations CV-14: None among them is a session without one, and an empty set is met by none."""
    lifecycle = every_backend.conversations.lifecycle
    every_backend.conversations.sessions.create(NewSession("s"))
    assert (lifecycle.try_transition("s", "running", expect=expect) is not None) is wins
    assert lifecycle.try_transition("s", "running", expect=()) is None


def test_unknown_words_are_refused_before_anything_is_written(every_backend: StateStore) -> None:
    """conversations CV-1, CV-2."""
    lifecycle: Any = every_backend.conversations.lifecycle
    running(every_backend)
    for call in (
        lambda: lifecycle.transition("s", "done"),
        lambda: lifecycle.transition("s", "failed", reason=Reason("run.failed.mystery")),
        lambda: lifecycle.transition("s", "failed", reason=Reason(source=cast("Any", "cron"))),
        lambda: lifecycle.transition("s", "failed", expect="done"),
        lambda: lifecycle.transition("s", "running", ended_at=every_backend.conversations.sessions.get("s").created_at),
        lambda: lifecycle.record_verification("s", {"status": 1}),
        lambda: every_backend.conversations.sessions.list(where=SessionFilter(statuses=["done"])),  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidValue):
            call()
    unknown: list[Any] = [
        lambda: lifecycle.transition("x", "failed"),
        lambda: lifecycle.transition("s", "failed", branch_id="x"),
        lambda: lifecycle.heartbeat("x", "w"),
        lambda: lifecycle.state("x"),
        lambda: lifecycle.record_verification("x", {"status": "passed"}),
    ]
    for missing in unknown:
        with pytest.raises(NotFound):
            missing()
    assert every_backend.conversations.sessions.get("s").transition_seq == 1


def test_a_status_of_a_later_version_is_read(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-1: and leads nowhere that this version knows."""
    c = every_backend.conversations
    running(every_backend)
    with unguarded_words(raw.name, raw):
        raw("UPDATE sessions SET status = 'frozen'")
    assert (c.sessions.get("s").status, c.lifecycle.state("s").health) == ("frozen", "unknown")
    assert refused(lambda: c.lifecycle.transition("s", "completed")) == "frozen"


def test_a_session_that_ended_is_opened_again_by_somebody(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-14: its end is cleared, and it has been active just now."""
    c = every_backend.conversations
    running(every_backend)
    assert refused(lambda: c.lifecycle.reopen("s", actor="ana")) == "running"
    c.lifecycle.heartbeat("s", "w")
    c.lifecycle.transition("s", "aborted")
    frozen_clock.advance(seconds=86_400)
    opened = c.lifecycle.reopen("s", actor="ana", reason=Reason(summary="again"))
    assert (opened.status, opened.reason_code, opened.actor, opened.seq) == ("running", "run.running.resumed", "ana", 3)
    session = c.sessions.get("s")
    assert (session.ended_at, session.owner, session.last_message_at) == (None, None, frozen_clock.now())
    assert c.lifecycle.state("s").health == "running"


def test_a_branch_has_a_status_of_its_own(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-1, CV-14: in the history of its session, whose status stays."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    began = c.lifecycle.transition(branch.session_id, "running", branch_id="main")
    c.lifecycle.transition(branch.session_id, "timed_out", branch_id="main")
    found = c.branches.get("main")
    assert (found.status, found.started_at, found.ended_at) == ("timed_out", began.created_at, frozen_clock.now())
    assert c.lifecycle.transition(branch.session_id, "timed_out", branch_id="main").seq == 2
    assert refused(lambda: c.lifecycle.transition(branch.session_id, "failed", branch_id="main")) == "timed_out"
    session = c.sessions.get(branch.session_id)
    assert (session.status, session.transition_seq) == (None, 2)
    assert len(c.lifecycle.history(branch.session_id, branch_id="main")) == 2
    assert c.lifecycle.state(branch.session_id).reason is None


def test_a_change_that_is_cut_off_leaves_nothing(every_backend: StateStore) -> None:
    """conversations CV-15: between the status and its history."""
    c = every_backend.conversations
    session = running(every_backend)

    def cut() -> None:
        raise KeyboardInterrupt

    with racing(every_backend) as race:
        race.before("INSERT INTO session_transitions", cut)
        with pytest.raises(KeyboardInterrupt):
            c.lifecycle.transition("s", "failed")
    assert (c.sessions.get("s"), len(c.lifecycle.history("s")), c.changes.head("s")) == (session, 1, 1)
    assert c.lifecycle.transition("s", "failed").seq == 2


def test_a_change_whose_task_is_cancelled_is_known_before_the_cancellation_is_raised(
    every_backend: StateStore,
) -> None:
    """conversations CV-15: and the store works on."""
    session = running(every_backend)

    async def work() -> Any:
        lifecycle, loop = AsyncStateStore(every_backend).conversations.lifecycle, asyncio.get_running_loop()
        with racing(every_backend) as race:
            race.before(2, lambda: loop.call_soon_threadsafe(task.cancel))
            task = asyncio.create_task(lifecycle.transition("s", "failed"))
            with pytest.raises(asyncio.CancelledError):
                await task
        assert race.left == 0
        assert every_backend.conversations.sessions.get("s").status == "failed"
        return await lifecycle.reopen("s", actor="ana")

    assert (asyncio.run(work()).seq, session.transition_seq) == (3, 1)


def test_a_running_session_has_one_owner_who_is_alive(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-26: another one is refused until the owner has been silent for 90 seconds."""
    c = every_backend.conversations
    for other in ("a", "z"):
        running(every_backend, other)
        c.lifecycle.heartbeat(other, "w0")
    session = running(every_backend)
    assert c.lifecycle.heartbeat("s", "w1") == frozen_clock.now()
    frozen_clock.advance(seconds=90)
    with pytest.raises(ClaimLost, match=r"held by 'w1'$"):
        c.lifecycle.heartbeat("s", "w2")
    frozen_clock.advance(seconds=0.001)
    assert c.lifecycle.heartbeat("s", "w2") == frozen_clock.now()
    held = c.sessions.get("s")
    assert (held.owner, held.updated_at, held.change_seq) == ("w2", session.updated_at, session.change_seq)
    c.lifecycle.transition("s", "completed")
    assert refused(lambda: c.lifecycle.heartbeat("s", "w2")) == "completed"


def test_a_session_is_held_and_says_what_it_belongs_to(every_backend: StateStore) -> None:
    """conversations CV-12: and is found by it."""
    c = every_backend.conversations
    belongs = {"project": "p", "agent_session_id": "a", "workflow_run_id": "r"}
    running(every_backend, artifact_contract={"files": ["x"]}, **belongs)
    c.sessions.create(NewSession("other"))
    assert c.sessions.hold("s", "the audit").hold_reason == "the audit"
    assert c.sessions.hold("s", None).hold_reason is None
    with pytest.raises(NotFound):
        c.sessions.hold("x", None)
    for name, value in belongs.items():
        assert [one.id for one in c.sessions.list(where=SessionFilter(**{name: value}))] == ["s"]  # type: ignore[arg-type]
    by: list[tuple[Any, int]] = [(["running"], 1), (["running", "failed"], 1), ([], 0), (None, 2)]
    for statuses, expected in by:
        assert c.sessions.count(where=SessionFilter(statuses=statuses)) == expected
    assert c.sessions.update("s", SessionPatch(project=None, artifact_contract=None)).project is None
