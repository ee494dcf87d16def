"""Tasks and series: one live occurrence, whatever happens to the last one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.each import with_each
from support.mailbox.files import PLACE, ids, inbound, send, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state import cron
from lastlight_state.errors import InvalidValue, LostRace, NotFound
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, Origin, When, WhenChange
from lastlight_state.settings import Settings
from lastlight_state.testing import FrozenClock

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
DAILY = When(process_after=NOON, recurrence="0 9 * * *")


@pytest.fixture(autouse=True)
def _at_noon(frozen_clock: FrozenClock) -> None:
    frozen_clock.set(NOON)


def live(host: HostMailbox) -> list[tuple[str, str]]:
    """Id and status of the live messages."""
    return sorted(sql(inbound(host), "SELECT id, status FROM messages_in WHERE status IN ('pending', 'paused')"))


def test_a_series_goes_on_after_a_completion_and_after_a_failure(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-39: in the transaction that settles, with the next even number."""
    first = host.tasks.create("report", prompt="write it", when=DAILY)
    agent.inbox.complete(first.id)
    assert host.sweep.sync().successors == 1
    second = host.tasks.get("report")
    assert (second.series_id, second.seq, second.status) == ("report", 4, "pending")
    assert second.process_after == datetime(2026, 2, 4, 9, tzinfo=UTC)
    frozen_clock.advance(timedelta(days=1))
    agent.inbox.fail(second.id, error="no paper")
    assert host.sweep.sync().successors == 1
    third = host.tasks.get("report")
    assert third.process_after == datetime(2026, 2, 5, 9, tzinfo=UTC)
    assert sql(inbound(host), "SELECT count(*) FROM messages_in WHERE recurrence IS NOT NULL") == [(1,)]


def test_two_settled_occurrences_have_one_successor(host: HostMailbox, mailboxes: Mailboxes) -> None:
    """mailbox MB-39: as the original may leave them; a second sweep stores none."""
    host.tasks.create("report", prompt="write it", when=DAILY)
    sql(inbound(host), "UPDATE messages_in SET status = 'completed'")
    sql(
        inbound(host),
        "INSERT INTO messages_in (id, seq, kind, timestamp, status, recurrence, series_id, content)"
        " VALUES ('twin', 8, 'task', '2026-01-01', 'completed', '0 9 * * *', 'report', '{}')",
    )
    assert host.sweep.advance().successors == 1
    assert mailboxes.host("group", "session").sweep.advance().successors == 0
    assert len(live(host)) == 1


def test_a_settled_occurrence_beside_a_live_one_has_no_other_successor(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-39: the live one was stored by another program, which does not repeat it."""
    host.tasks.create("report", prompt="write it", when=DAILY)
    agent.inbox.complete("report")
    sql(
        inbound(host),
        "INSERT INTO messages_in (id, seq, kind, timestamp, status, series_id, content)"
        " VALUES ('twin', 8, 'task', '2026-01-01', 'pending', 'report', '{}')",
    )
    assert host.sweep.sync().successors == 0
    assert live(host) == [("twin", "pending")]


def test_a_task_that_is_paused_while_it_runs_is_followed_by_a_paused_one(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-39"""
    host.tasks.create("report", prompt="write it", when=DAILY)
    agent.inbox.take()
    host.tasks.pause("report")
    agent.inbox.complete("report")
    host.sweep.sync()
    assert [status for _, status in live(host)] == ["paused"]


def test_a_paused_task_that_its_host_fails_is_followed_by_a_paused_one(host: HostMailbox) -> None:
    """mailbox MB-39"""
    host.tasks.create("report", prompt="write it", when=DAILY)
    host.tasks.pause("report")
    host.inbox.fail("report", error="no paper")
    assert [status for _, status in live(host)] == ["paused"]


def test_missed_periods_are_one_late_run(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-39: then the future."""
    host.tasks.create("report", prompt="write it", when=DAILY)
    frozen_clock.advance(timedelta(days=3, hours=1))
    assert [message.id for message in agent.inbox.take()] == ["report"]
    agent.inbox.complete("report")
    host.sweep.sync()
    assert host.tasks.get("report").process_after == datetime(2026, 2, 7, 9, tzinfo=UTC)


def test_a_pattern_is_read_in_its_own_zone(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-38, case 29: never in the process's."""
    zone = When(process_after=NOON, recurrence="0 9 * * *", timezone="America/New_York")
    host.tasks.create("winter", prompt="p", when=zone)
    agent.inbox.complete("winter")
    host.sweep.sync()
    assert host.tasks.get("winter").process_after == datetime(2026, 2, 3, 14, tzinfo=UTC)


def test_a_row_without_a_zone_is_read_in_the_settings_one(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-38"""
    host.tasks.create("report", prompt="p", when=DAILY)
    agent.inbox.complete("report")
    tokyo = HostMailbox.open(host.folder, settings=Settings(mailbox_timezone="Asia/Tokyo"), clock=frozen_clock)
    tokyo.sweep.sync()
    assert host.tasks.get("report").process_after == datetime(2026, 2, 4, 0, tzinfo=UTC)


def test_an_occurrence_that_is_done_early_is_followed_by_one_after_it(host: HostMailbox) -> None:
    """mailbox MB-39: its own time is not given a second time."""
    ahead = datetime(2026, 2, 5, 9, tzinfo=UTC)
    host.tasks.create("report", prompt="p", when=When(process_after=ahead, recurrence="0 9 * * *"))
    host.inbox.fail("report", error="done by hand")
    assert host.tasks.get("report").process_after == ahead + timedelta(days=1)


def test_a_next_occurrence_is_the_same_message_again(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-39: with its zone and whether it wakes; its tries begin anew, and nobody sent it."""
    zone = When(NOON, "0 9 * * *", "America/New_York", trigger=False, on_wake=True)
    origin = Origin(source_session_id="other")
    first = host.inbox.send("m", kind="news", content={"a": [1]}, routing=PLACE, when=zone, origin=origin)
    sql(inbound(host), "UPDATE messages_in SET tries = 3")
    agent.inbox.complete(first.id)
    host.sweep.sync()
    [found] = host.inbox.list(status="pending")
    second = host.inbox.get(found.id)
    kept = {"kind", "content", "routing", "recurrence", "timezone", "trigger", "series_id"}
    assert second.model_dump(include=kept) == first.model_dump(include=kept)
    assert (second.tries, second.on_wake, second.source_session_id) == (0, False, None)


@with_each("pattern", ["", "0 0 31 2 *", "60 * * * *"])
def test_a_pattern_that_never_matches_is_refused(tmp_path: Path, frozen_clock: FrozenClock, pattern: str) -> None:
    """mailbox MB-38: so is an unknown zone."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    for when in (When(recurrence=pattern), When(recurrence="0 9 * * *", timezone="Mars/Olympus")):
        with pytest.raises(InvalidValue):
            host.tasks.create(prompt="p", when=when)


def test_a_new_pattern_is_checked_in_the_zone_that_the_task_has(host: HostMailbox) -> None:
    """mailbox MB-38: an unknown one of others is refused until it is replaced."""
    host.tasks.create("report", prompt="p", when=DAILY)
    sql(inbound(host), "UPDATE messages_in SET timezone = 'Mars/Olympus'")
    with pytest.raises(InvalidValue, match="Mars/Olympus"):
        host.tasks.update("report", when=WhenChange(recurrence="0 8 * * *"))
    found = host.tasks.update("report", when=WhenChange(recurrence="0 8 * * *", timezone="UTC"))
    assert (found.recurrence, found.timezone) == ("0 8 * * *", "UTC")


def test_a_pattern_of_others_that_cannot_be_read_stops_no_other_series(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-38: each sweep names it."""
    for name in ("bad", "good"):
        host.tasks.create(name, prompt="p", when=DAILY)
    sql(inbound(host), "UPDATE messages_in SET recurrence = 'every day' WHERE id = 'bad'")
    agent.inbox.complete("bad", "good")
    report = host.sweep.sync()
    assert (report.completed, report.successors, report.unreadable_series) == (2, 1, ("bad",))
    assert host.sweep.advance().unreadable_series == ("bad",)


def test_any_id_of_a_series_names_its_live_message(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-36: settled ones never change."""
    host.tasks.create("report", prompt="write it", when=DAILY)
    agent.inbox.complete("report")
    host.sweep.sync()
    settled = host.inbox.get("report")
    changed = host.tasks.update("report", prompt="print it", when=WhenChange(process_after=NOON))
    assert (changed.prompt, changed.process_after) == ("print it", NOON)
    assert host.tasks.pause(changed.id).status == "paused"
    assert host.tasks.resume("report").status == "pending"
    assert [task.id for task in host.tasks.list()] == [changed.id]
    assert host.inbox.get("report") == settled
    with pytest.raises(NotFound):
        host.tasks.pause("unknown")


def test_a_cancelled_task_never_runs_again(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-37: also when the agent completes what it has."""
    host.tasks.create("report", prompt="write it", when=DAILY)
    agent.inbox.take()
    assert host.tasks.cancel("report").outcome == "cancelled"
    agent.inbox.complete("report")
    host.sweep.run(agent_started_at=None)
    assert live(host) == []
    with pytest.raises(LostRace) as lost:
        host.tasks.resume("report")
    assert lost.value.details["status"] == "completed"


def test_content_that_is_no_object_cannot_be_merged(host: HostMailbox) -> None:
    """mailbox MB-37: also what is no JSON; and an update of nothing is refused."""
    host.inbox.send("report", kind="task", content=[1, 2])
    host.inbox.send("broken", kind="task", content={})
    sql(inbound(host), "UPDATE messages_in SET content = '{broken' WHERE id = 'broken'")
    before = sql(inbound(host), "SELECT * FROM messages_in")
    with pytest.raises(InvalidValue):
        host.tasks.update("report", prompt="print it", when=WhenChange(process_after=NOON))
    with pytest.raises(InvalidValue, match="not an object"):
        host.tasks.update("broken", prompt="print it")
    with pytest.raises(InvalidValue):
        host.tasks.update("report")
    assert sql(inbound(host), "SELECT * FROM messages_in") == before


def test_a_message_is_no_task(host: HostMailbox) -> None:
    """mailbox MB-36"""
    send(host, "chat")
    assert host.tasks.find("chat") is None


def test_a_pattern_that_cannot_be_read_is_looked_at_only_when_it_or_its_zone_changes(host: HostMailbox) -> None:
    """mailbox MB-38, MB-37: a task of others gets its time all the same, and one without a pattern any zone."""
    host.tasks.create("report", prompt="p", when=DAILY)
    sql(inbound(host), "UPDATE messages_in SET recurrence = 'every day'")
    found = host.tasks.update("report", when=WhenChange(process_after=NOON))
    assert (found.recurrence, found.process_after) == ("every day", NOON)
    with pytest.raises(InvalidValue, match="every day"):
        host.tasks.update("report", when=WhenChange(timezone="UTC"))
    assert host.tasks.update("report", when=WhenChange(recurrence=None)).recurrence is None
    assert host.tasks.update("report", when=WhenChange(timezone="Europe/Oslo")).timezone == "Europe/Oslo"
    with pytest.raises(InvalidValue, match="Mars"):
        host.tasks.update("report", when=WhenChange(timezone="Mars/Olympus"))


@with_each(("column", "value"), [("recurrence", "0 0 31 2 *"), ("process_after", "9999-12-31T12:00:00.000Z")])
def test_a_series_that_has_no_next_occurrence_ends(
    tmp_path: Path, frozen_clock: FrozenClock, column: str, value: str
) -> None:
    """mailbox MB-38, MB-39: of a pattern that never matches, and at the end of the calendar; as others store it."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    host.tasks.create("report", prompt="p", when=DAILY)
    sql(inbound(host), f"UPDATE messages_in SET {column} = ?", [value])
    agent.inbox.complete("report")
    report = host.sweep.sync()
    assert (report.completed, report.successors) == (1, 0)
    assert sql(inbound(host), "SELECT status FROM messages_in") == [("completed",)]


@with_each(
    ("content", "edited"),
    [
        ("print it", '{"prompt":"mail it"}'),
        ('"print it"', '{"prompt":"mail it"}'),
        ("true story", '{"prompt":"mail it"}'),
        ("{}", '{"prompt":"mail it"}'),
        (
            '{ "big" : 1180591620717411303424, "prompt":"x","f":1.50 , "half":"\\ud83d", "n":[ 1,{"a":1e400}]}',
            '{"big":1180591620717411303424,"f":1.50,"half":"\\ud83d","n":[ 1,{"a":1e400}],"prompt":"mail it"}',
        ),
        (
            '{"prompt":"a","prompt":"b","\\u0070rompt":"c","o":{"prompt":"d"}}',
            '{"o":{"prompt":"d"},"prompt":"mail it"}',
        ),
    ],
)
def test_an_edit_leaves_what_another_program_wrote_beside_it(
    tmp_path: Path, frozen_clock: FrozenClock, content: str, edited: str
) -> None:
    """mailbox MB-37: numbers, halves of characters and doubled names keep their spelling; plain text is the prompt."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    host.inbox.send("report", kind="task", content={})
    sql(inbound(host), "UPDATE messages_in SET content = ?", (content,))
    host.tasks.update("report", prompt="mail it")
    assert sql(inbound(host), "SELECT content FROM messages_in") == [(edited,)]
    host.tasks.update("report", script="run")
    assert sql(inbound(host), "SELECT content FROM messages_in") == [(edited[:-1] + ',"script":"run"}',)]
    host.tasks.update("report", script=None)
    assert sql(inbound(host), "SELECT content FROM messages_in") == [(edited,)]


def test_the_prompt_of_a_task_in_plain_text_is_that_text(host: HostMailbox) -> None:
    """mailbox MB-37"""
    host.inbox.send("report", kind="task", content={})
    sql(inbound(host), "UPDATE messages_in SET content = 'print it'")
    assert host.tasks.get("report").prompt == "print it"
    assert host.tasks.update("report", script="run").prompt == "print it"


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_a_recurring_task_first_runs_at_a_moment_of_its_pattern(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock, zone: str | None
) -> None:
    """mailbox MB-38: in its zone; one that is to run at once says so."""
    now = frozen_clock.now()
    host.tasks.create("later", prompt="p", when=When(recurrence="0 9 * * *", timezone=zone))
    host.tasks.create("now", prompt="p", when=When(recurrence="0 9 * * *", timezone=zone, process_after=now))
    assert host.tasks.get("later").process_after == cron.next_after("0 9 * * *", zone or "UTC", now)
    assert ids(agent.inbox.take()) == ["now"]
