"""What the host makes of acknowledgements, of an agent that died, and of one that is stuck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.each import with_each
from support.mailbox.files import ids, inbound, outbound, reply, send, sql

from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.errors import LostRace
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewMessage, StalePolicy, When
from lastlight_state.files.mailbox.host import standing
from lastlight_state.testing import FrozenClock

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_failed_message_is_failed(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-50: with its error, also after a second sync."""
    message = send(host)
    agent.inbox.fail(message.id, error="no such tool")
    assert (host.sweep.sync().failed, host.sweep.sync().failed) == (1, 0)
    found = host.inbox.get(message.id)
    assert (found.status, found.error, found.outcome) == ("failed", "no such tool", "failed")


def test_a_sync_with_nothing_to_settle_takes_no_lock(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-50"""
    message = send(host)
    agent.inbox.take()
    before = inbound(host).stat().st_mtime_ns
    assert host.sweep.sync().completed == 0
    assert inbound(host).stat().st_mtime_ns == before
    agent.inbox.complete(message.id)
    assert host.sweep.sync().completed == 1


def test_what_a_dead_agent_held_is_tried_five_times(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-52, case 14: a second release counts nothing; the delays double, and then it has failed."""
    message = send(host)
    delays = []
    for _ in range(5):
        assert ids(agent.inbox.take()) == [message.id]
        before = host.inbox.get(message.id).tries
        for _ in range(3):
            host.sweep.release(reason="killed")
        found = host.inbox.get(message.id)
        assert found.tries == before + 1
        assert found.process_after is not None
        delays.append((found.process_after - frozen_clock.now()).total_seconds())
        frozen_clock.advance(timedelta(minutes=5))
        agent.start()
    assert delays == [5, 10, 20, 40, 80]
    agent.inbox.take()
    assert host.sweep.release(reason="killed").exhausted == 1
    found = host.inbox.get(message.id)
    assert (found.status, found.outcome, found.error) == ("failed", "exhausted", "killed")


def test_a_release_frees_without_writing_the_agents_file(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-44, case 15: the acknowledgement stays there, and no longer hides the message."""
    message = send(host)
    agent.inbox.take()
    before = outbound(host).read_bytes()
    host.sweep.release(reason="killed")
    assert outbound(host).read_bytes() == before
    assert ids(agent.inbox.peek()) == []
    frozen_clock.advance(MINUTE)
    assert ids(agent.inbox.peek()) == [message.id]


def test_a_series_goes_on_after_its_last_try(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-39, MB-52: in the transaction that gives the message up."""
    task = host.tasks.create("report", prompt="p", when=When(recurrence="0 9 * * *"))
    sql(inbound(host), "UPDATE messages_in SET tries = 5")
    agent.inbox.claim(task.id)
    assert host.sweep.release(reason="killed").exhausted == 1
    found = host.tasks.get("report")
    assert (found.status, found.id != task.id) == ("pending", True)


def test_a_paused_message_stays_paused_when_its_agent_dies(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-52: also one that has no tries left."""
    for tries in (0, 5):
        task = host.tasks.create(prompt="p", when=When())
        sql(inbound(host), "UPDATE messages_in SET tries = ? WHERE id = ?", [tries, task.id])
        agent.inbox.claim(task.id)
        host.tasks.pause(task.id)
        report = host.sweep.release(reason="killed")
        assert (report.released, report.exhausted) == (0, 0)
        assert (host.inbox.get(task.id).status, host.inbox.get(task.id).tries) == ("paused", tries)


def test_a_message_that_is_paused_while_it_is_given_up_stays_paused(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-52: paused between the look and the write."""
    task = host.tasks.create("report", prompt="p", when=When(recurrence="0 9 * * *"))
    sql(inbound(host), "UPDATE messages_in SET tries = 5")
    agent.inbox.claim(task.id)
    acquire = SqliteBackend.acquire

    def paused_first(backend: SqliteBackend, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        if mode is Mode.WRITE:
            sql(inbound(host), "UPDATE messages_in SET status = 'paused'")
        return acquire(backend, mode, checkout)

    monkeypatch.setattr(SqliteBackend, "acquire", paused_first)
    report = host.sweep.release(reason="killed")
    assert (report.released, report.exhausted) == (0, 0)
    assert sql(inbound(host), "SELECT id, status FROM messages_in") == [("report", "paused")]


def test_a_claim_from_the_future_is_freed(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-52, MB-44: one of the original, whose clock goes ahead."""
    message = send(host)
    row = (message.id, "processing", "2099-01-01 00:00:00")
    sql(outbound(host), "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, ?)", row)
    assert host.sweep.release(reason="gone").released == 1
    frozen_clock.advance(MINUTE)
    assert ids(agent.inbox.peek()) == [message.id]


def test_an_acknowledgement_after_a_release(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-50, case 18: work that was done counts, a failure of an earlier try does not."""
    agent.start()
    done, failed = send(host), send(host)
    agent.inbox.take()
    host.sweep.release(reason="killed")
    agent.inbox.complete(done.id)
    agent.inbox.fail(failed.id, error="late")
    frozen_clock.advance(MINUTE)
    assert ids(agent.inbox.peek()) == [failed.id]
    report = host.sweep.sync()
    assert (report.completed, report.failed) == (1, 0)
    assert host.inbox.get(failed.id).status == "pending"


def test_a_claim_of_the_original_is_freed_by_a_release(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-44, MB-52: it has no count of tries, so its time decides."""
    message = send(host)
    row = (message.id, "processing", "2026-01-01 00:00:00")
    sql(outbound(host), "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, ?)", row)
    assert ids(agent.inbox.peek()) == []
    assert [claim.message_id for claim in host.sweep.claims()] == [message.id]
    assert host.sweep.release(reason="gone").released == 1
    assert host.sweep.claims() == []
    frozen_clock.advance(MINUTE)
    assert ids(agent.inbox.peek()) == [message.id]


def test_a_retry_gives_all_tries_again(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-34: it is polled in spite of its failed acknowledgement."""
    message = send(host)
    agent.inbox.fail(message.id, error="broken")
    with pytest.raises(LostRace) as early:
        host.inbox.retry(message.id)
    host.sweep.sync()
    with pytest.raises(LostRace) as late:
        host.inbox.fail(message.id, error="again")
    assert [lost.value.details["status"] for lost in (early, late)] == ["pending", "failed"]
    found = host.inbox.retry(message.id)
    assert (found.status, found.tries, found.error) == ("pending", 1, None)
    assert ids(agent.inbox.take()) == [message.id]
    assert host.sweep.release(reason="killed").released == 1
    with pytest.raises(LostRace):
        host.inbox.retry(message.id)


def test_each_side_counts_what_waits(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-06: each count by itself."""
    sent = [send(host) for _ in range(6)]
    done = send(host)
    send(host, process_after=frozen_clock.now() + MINUTE)
    task = host.tasks.create(prompt="p", when=When())
    host.tasks.pause(task.id)
    agent.inbox.claim(sent[0].id, sent[1].id, done.id)
    agent.inbox.complete(done.id)
    for message in sent[2:4]:
        host.inbox.fail(message.id, error="no")
    answers = [reply(agent) for _ in range(6)]
    host.outbox.mark_delivered(answers[0].id)
    host.outbox.mark_failed(answers[1].id, error="gone", permanent=True)
    for side in (host, agent):
        found = side.status()
        assert (found.pending, found.due, found.claimed, found.paused, found.failed) == (6, 2, 2, 1, 2)
        assert (found.undelivered, found.undeliverable) == (4, 1)


def test_due_work_wakes_and_held_work_does_not(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-32, case 74"""
    send(host, kind="system")
    assert host.sweep.assess(agent_started_at=None).action == "ok"
    send(host)
    assert host.sweep.assess(agent_started_at=None).action == "wake"
    agent.inbox.take()
    assert host.inbox.count_due() == 0
    assert host.sweep.assess(agent_started_at=None).action == "ok"


def test_context_beyond_the_limit_expires(host: HostMailbox) -> None:
    """mailbox MB-54: the oldest go and the newest stay."""
    sent = host.inbox.send_many([NewMessage("chat", {}, when=When(trigger=False)) for _ in range(8)])
    assert host.sweep.expire(policy=StalePolicy(max_context=5)) == 3
    assert [host.inbox.get(message.id).outcome for message in sent] == ["expired"] * 3 + [None] * 5
    assert host.sweep.expire(policy=StalePolicy(max_context=None)) == 0


def test_one_session_does_not_stop_another(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-53: the report names the one that cannot be read."""
    other = mailboxes.create("group", "other")
    inbound(host).write_bytes(b"no database at all" * 99)
    reports = mailboxes.sweep([("group", "session"), ("group", "other")], lambda _group, _session: None)
    assert [bool(report.errors) for report in reports] == [True, False]
    assert reports[1].session == other.session
    assert "inbound.db" in reports[0].errors[0]


def test_a_step_that_fails_stops_no_other(host: HostMailbox) -> None:
    """mailbox MB-53: what was done stays, and each step that failed is named."""
    host.inbox.send_many([NewMessage("chat", {}, when=When(trigger=False)) for _ in range(3)])
    outbound(host).write_bytes(b"no database at all" * 99)
    report = host.sweep.run(agent_started_at=NOON, policy=StalePolicy(max_context=1))
    assert [error.partition(":")[0] for error in report.errors] == ["sync", "assessment"]
    assert (report.sync, report.expired) == (None, 2)


def test_an_error_of_the_program_itself_ends_the_sweep(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-53: it is no fault of a session, and would be overlooked in a report."""
    with pytest.raises(ZeroDivisionError):
        mailboxes.sweep([("group", "session")], lambda _group, _session: NOON if 1 / 0 else None)

    class Broken:
        def now(self) -> datetime:
            raise ZeroDivisionError

    broken = HostMailbox.open(host.folder, clock=Broken())
    with pytest.raises(ZeroDivisionError):
        broken.sweep.run(agent_started_at=None)


def test_acknowledgements_of_unknown_messages_are_counted(host: HostMailbox) -> None:
    """mailbox MB-50"""
    acknowledge = "INSERT INTO processing_ack (message_id, status, status_changed) VALUES ('gone', 'completed', 't')"
    sql(outbound(host), acknowledge)
    assert host.sweep.sync().ignored == 1


@with_each(
    ("signs", "reason"),
    [
        ({"heartbeat": -29.98 * MINUTE}, None),
        ({"heartbeat": -30 * MINUTE}, None),
        ({"heartbeat": -30.02 * MINUTE}, "silent"),
        ({"heartbeat": -90 * MINUTE, "tool": "Bash", "tool_timeout": 120 * MINUTE}, None),
        ({"heartbeat": -90 * MINUTE, "tool": "Read", "tool_timeout": 120 * MINUTE}, "silent"),
        ({"started_at": -31 * MINUTE}, "silent"),
        ({"started_at": -MINUTE / 6}, None),
        ({"started_at": -MINUTE / 60, "heartbeat": -90 * MINUTE, "claims": [-80 * MINUTE]}, None),
        ({"heartbeat": -2 * MINUTE, "claims": [-MINUTE]}, None),
        ({"heartbeat": -2 * MINUTE, "claims": [-1.01 * MINUTE]}, "claim"),
        ({"heartbeat": -MINUTE / 2, "claims": [-2 * MINUTE]}, None),
        ({"heartbeat": -2 * MINUTE, "claims": [-2 * MINUTE]}, "claim"),
        ({"started_at": -2 * MINUTE, "claims": [-2 * MINUTE]}, "claim"),
        ({"heartbeat": 99 * MINUTE, "claims": [-2 * MINUTE]}, None),
    ],
)
def test_an_agent_is_judged_by_its_last_sign_of_life(signs: dict[str, object], reason: str | None) -> None:
    """mailbox MB-51, case 41, case 42, case 44: times are minutes from now."""

    def placed(value: object) -> object:
        if isinstance(value, list):
            return [NOON + one for one in value]
        return NOON + value if isinstance(value, timedelta) else value

    given = {name: value if name == "tool_timeout" else placed(value) for name, value in signs.items()}
    known = standing.Signs(**{"started_at": NOON - 600 * MINUTE, **given})  # type: ignore[arg-type]
    verdict = standing.judge_stale(known, NOON, StalePolicy())
    assert (verdict and verdict[0]) == reason


def test_a_silent_agent_is_stopped_and_a_beating_one_is_not(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-51, MB-55: the heartbeat is the time of a file, and the tool in use is known."""
    started = frozen_clock.now()
    frozen_clock.advance(40 * MINUTE)
    assert host.sweep.assess(agent_started_at=started).reason == "silent"
    agent.tool_started("Bash", timedelta(hours=2))
    assert host.sweep.assess(agent_started_at=started).action == "ok"
    agent.tool_finished()
    assert agent.beat()
    assert host.sweep.assess(agent_started_at=started).action == "ok"


def test_a_heartbeat_follows_no_link(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-55: nor does it raise for a folder that is gone."""
    target = host.folder.parent / "elsewhere"
    target.write_text("")
    before = target.stat().st_mtime_ns
    (host.folder / ".heartbeat").symlink_to(target)
    assert not agent.beat()
    assert target.stat().st_mtime_ns == before
    host.folder.rename(host.folder.with_name("gone"))
    assert not agent.beat()


def test_claim_times_without_a_zone_are_utc(host: HostMailbox) -> None:
    """mailbox MB-51"""
    message = send(host)
    row = (message.id, "processing", "2026-02-03 12:00:00")
    sql(outbound(host), "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, ?)", row)
    assert host.sweep.claims()[0].claimed_at == NOON
    sql(outbound(host), "UPDATE processing_ack SET status_changed = 'noon'")
    assert host.sweep.assess(agent_started_at=NOON).unreadable_claims == (message.id,)
