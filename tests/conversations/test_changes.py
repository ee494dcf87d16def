from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from support.between import before
from support.conversations.talk import begun, said
from support.workflows.steps import undone

from lastlight_state import AsyncStateStore, Conflict, InvalidValue, MisuseError, NotFound, StateStore, iterate
from lastlight_state.aio.forward import Waker
from lastlight_state.conversations import BranchPatch, Change, NewBranch, NewMessage, NewSession, SessionPatch
from lastlight_state.conversations.shared.feeds import watch_for
from lastlight_state.db import valid
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, FrozenClock

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
#: How long a test waits for what must come.
LONG = 30


def kinds(store: Any, session_id: str, after: int = 0) -> list[str]:
    return [one.kind for one in iterate(store.conversations.changes.after, session_id, after, limit=3)]


def test_each_change_of_a_session_is_in_its_feed_once(every_backend: StateStore) -> None:
    """conversations CV-29: by gap-free numbers, with what it is about."""
    c = every_backend.conversations
    session = c.sessions.create(NewSession("s", status="running"))
    branch = c.branches.create("s", NewBranch(id="main", system=NewMessage("system", "be kind", id="sys")))
    c.branches.append("main", said("a", "b"))
    c.lineage.fork("main", at=1, branch_id="fork")
    c.branches.update("main", BranchPatch(name="n"))
    c.branches.replace_system("main", NewMessage("system", "be brief", id="sys2"))
    c.progressions.append(session.progression_id, ["a"], on_repeat="keep")
    c.progressions.replace(branch.progression_id, ["a"], expect_version=1)
    c.sessions.update("s", SessionPatch(name="n"))
    c.sessions.merge_metadata("s", {"k": 1})
    c.sessions.hold("s", "audit")
    c.lifecycle.transition("s", "failed")
    found = list(iterate(c.changes.after, "s", limit=5))
    assert [one.seq for one in found] == [*range(1, 13)]
    assert [one.kind for one in found] == [
        "session.created", "branch.created", "messages.appended", "branch.forked", "branch.updated", "branch.updated",
        "messages.appended", "progression.replaced", *["session.updated"] * 3, "status.changed",
    ]  # fmt: skip
    appended, forked, ended = found[2], found[3], found[-1]
    assert (appended.branch_id, appended.ord, appended.count) == ("main", 0, 2)
    assert (forked.branch_id, forked.ord) == ("fork", 1)
    assert ended.details == {"from": "running", "to": "failed"}
    assert c.changes.head("s") == c.sessions.get("s").change_seq == 12


def test_what_changes_nothing_is_not_in_a_feed(every_backend: StateStore) -> None:
    """conversations CV-18, CV-29: nor are heartbeats and touches."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    c.lifecycle.transition(branch.session_id, "running")
    head = c.changes.head(branch.session_id)
    c.branches.append("main", said("a"))
    c.messages.put(said("a")[0])
    c.sessions.touch(branch.session_id)
    c.lifecycle.heartbeat(branch.session_id, "w")
    c.lifecycle.transition(branch.session_id, "running")
    c.sessions.update(branch.session_id, SessionPatch())
    c.progressions.replace(branch.progression_id, ["a"], expect_version=1)
    assert c.changes.head(branch.session_id) == head


def test_a_revised_message_is_told_to_running_sessions(every_backend: StateStore) -> None:
    """conversations CV-6, CV-29: once to each, and of the others to the one through which it is revised."""
    c = every_backend.conversations
    for name, status in (("live", "running"), ("also", "running"), ("over", "completed"), ("legacy", None)):
        c.sessions.create(NewSession(name, status=status))  # type: ignore[arg-type]
        c.branches.append(c.branches.create(name, NewBranch(id=name)).id, said("m") if name == "live" else ["m"])
    c.messages.put(NewMessage("user", {"text": "grown"}, id="m"))
    assert {name: kinds(every_backend, name, 3) for name in ("live", "also", "over", "legacy")} == {
        "live": ["message.revised"], "also": ["message.revised"], "over": [], "legacy": []
    }  # fmt: skip
    c.branches.append("over", [NewMessage("user", {"text": "grown more"}, id="m")])
    c.branches.replace_system("over", NewMessage("system", "grown again", id="m"))
    c.branches.create("legacy", NewBranch(system=NewMessage("system", "grown at last", id="m")))
    assert kinds(every_backend, "over", 3) == ["message.revised", "message.revised", "branch.updated"]
    assert kinds(every_backend, "legacy", 3) == ["message.revised", "branch.created"]
    assert c.changes.after("also", 4).items[0].message_id == "m"


def test_a_late_hook_appends_to_a_session_that_has_ended(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-20: feed and clocks move, the status stays."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    c.lifecycle.transition(branch.session_id, "completed")
    frozen_clock.advance(seconds=1)
    c.branches.append("main", said("late"))
    session = c.sessions.get(branch.session_id)
    assert (session.status, session.last_message_at) == ("completed", frozen_clock.now())
    assert kinds(every_backend, branch.session_id)[-1] == "messages.appended"


def test_a_feed_that_was_trimmed_says_so(every_backend: StateStore) -> None:
    """conversations CV-32: with the lowest number that is left."""
    c = every_backend.conversations
    begun(every_backend, *"abcde", branch_id="other")  # has entries below, and further ones
    c.branches.update("other", BranchPatch(name="n"))
    branch = begun(every_backend, "a")
    assert c.changes.trim(branch.session_id, below=3) == 2
    with pytest.raises(Conflict, match="entries after 0 were removed; 3 is the lowest") as refused:
        c.changes.after(branch.session_id, 0)
    assert (refused.value.code, refused.value.details["lowest"]) == ("feed_trimmed", 3)
    assert [one.seq for one in c.changes.after(branch.session_id, 2)] == [3]
    assert c.changes.trim(branch.session_id, below=100) == 1
    with pytest.raises(Conflict) as refused:
        c.changes.after(branch.session_id, 2)
    assert refused.value.details["lowest"] == 4
    assert c.changes.after(branch.session_id, 3).items == ()
    assert c.changes.head(branch.session_id) == 3
    for missing in (lambda: c.changes.after("x"), lambda: c.changes.head("x"), lambda: c.changes.wait("x", timeout=0)):
        with pytest.raises(NotFound):
            missing()


def test_a_trimmed_feed_whose_counter_was_behind_gives_no_number_again(store: Any, database: Database) -> None:
    """conversations CV-32: also where no entry is left that tells the last number."""
    c = database.open().conversations
    branch = begun(database.open(), "a")
    last = c.changes.head(branch.session_id)
    database.raw().execute("UPDATE sessions SET change_seq = 1")
    assert store.conversations.changes.trim(branch.session_id, below=100) == last
    c.branches.append(branch.id, said("b"))
    assert [one.seq for one in c.changes.after(branch.session_id, last)] == [last + 1]


def test_those_who_subscribed_are_told_what_was_committed(every_backend: StateStore) -> None:
    """conversations CV-31: nothing of what is rolled back, and whatever another one raises."""
    c = every_backend.conversations
    told: list[Change] = []

    def fail(_change: Change) -> None:
        raise ValueError

    unsubscribe = c.changes.subscribe(told.append)
    c.changes.subscribe(fail)
    branch = begun(every_backend, "a")
    with undone(every_backend) as tx:
        tx.conversations.branches.append("main", said("b"))
    assert told == list(c.changes.after(branch.session_id))
    unsubscribe()
    c.branches.append("main", said("c"))
    assert len(told) == 3


def test_a_follower_sees_each_entry_once_and_in_order(every_backend: StateStore) -> None:
    """conversations CV-29, CV-30: whoever commits, from the number on that it has."""
    c = every_backend.conversations
    branch = begun(every_backend)

    def write(n: int) -> None:
        for i in range(5):
            c.branches.append("main", said(f"{n}-{i}"))

    seen = []
    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, n) for n in range(2)]
        for change in c.changes.follow(branch.session_id, 1, poll_interval=0.01):
            seen.append(change.seq)
            if len(seen) == 11:
                break
        for one in writing:
            one.result()
    assert seen == list(range(2, 13))


def test_a_follower_gets_what_takes_several_pages(every_backend: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """conversations CV-30: before it waits for more."""
    monkeypatch.setattr(valid, "PAGE_LIMIT", 2)
    c = every_backend.conversations
    branch = begun(every_backend)
    for text in "abc":
        c.branches.append("main", said(text))
    assert [one.seq for one in c.changes.follow(branch.session_id, idle_timeout=0)] == [1, 2, 3, 4, 5]


def test_following_ends_when_it_is_told_to_or_nothing_comes(every_backend: StateStore) -> None:
    """conversations CV-30."""
    c = every_backend.conversations
    branch = begun(every_backend)
    stop = threading.Event()
    stop.set()
    assert list(c.changes.follow(branch.session_id, stop=stop)) == []
    assert len(list(c.changes.follow(branch.session_id, idle_timeout=0))) == 2
    with pytest.raises(MisuseError), every_backend.transaction() as tx:
        tx.conversations.changes.follow(branch.session_id)


def test_who_follows_or_waits_is_told_that_the_session_is_gone(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-30: pruned meanwhile."""
    c = every_backend.conversations
    session = c.sessions.create()
    following = c.changes.follow(session.id, poll_interval=0.01)
    assert next(following).kind == "session.created"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(c.changes.wait, session.id, 1, timeout=LONG, poll_interval=0.01)
        frozen_clock.advance(timedelta(days=31))
        every_backend.maintenance.prune.run(PrunePolicy(keep_n=0))
        with pytest.raises(NotFound):
            next(following)
        with pytest.raises(NotFound):
            waiting.result(LONG)


def test_who_follows_is_told_that_the_session_was_gone_although_another_has_its_name_now(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-30: its numbers are not those of the session that was followed."""
    c = every_backend.conversations
    c.sessions.create(NewSession("s"))
    following = c.changes.follow("s", poll_interval=0.01, idle_timeout=0.5)
    assert next(following).kind == "session.created"
    watch = watch_for(every_backend._scope)
    frozen_clock.advance(timedelta(days=31))
    every_backend.maintenance.prune.run(PrunePolicy(keep_n=0))
    watch.wait_for_growth({"s": 1}, LONG)
    with watch._lock:  # nobody looks again before the follower does
        c.sessions.create(NewSession("s"))
        with pytest.raises(NotFound):
            next(following)


def test_waiting_ends_with_news_or_with_its_time(every_backend: StateStore, database: Database) -> None:
    """conversations CV-30: news that another store commits, too."""
    c = every_backend.conversations
    branch = begun(every_backend)
    assert c.changes.wait(branch.session_id, 2, timeout=0.01, poll_interval=0.01).items == ()
    assert len(c.changes.wait(branch.session_id, 0, timeout=LONG)) == 2
    other = database.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(c.changes.wait, branch.session_id, 2, timeout=LONG, poll_interval=0.01)
        other.conversations.branches.append("main", said("a"))
        assert [one.seq for one in waiting.result(LONG)] == [3]


def test_sessions_that_changed_are_listed_in_the_order_of_their_changes(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-31: from a minute before on, because a commit may be late."""
    c = every_backend.conversations
    for name in ("a", "b", "c"):
        c.sessions.create(NewSession(name))
        frozen_clock.advance(seconds=40)
    c.sessions.update("b", SessionPatch(name="later"))
    since = frozen_clock.now()
    first = c.changes.updated_sessions(since, limit=1)
    assert [one.id for one in first] == ["c"]
    assert [one.id for one in c.changes.updated_sessions(since, limit=1, page_token=first.next_page_token)] == ["b"]
    ever = datetime.min.replace(tzinfo=UTC)
    assert [one.id for one in c.changes.updated_sessions(ever)] == ["a", "c", "b"]


def test_a_follower_of_all_sees_each_change_of_a_session_once(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-30, CV-31: what is seen again and has not changed is left out."""
    c = every_backend.conversations
    for name in ("a", "b"):
        c.sessions.create(NewSession(name))
    began, stop, seen = frozen_clock.now(), threading.Event(), []
    for session in c.changes.follow_all(began, poll_interval=0, idle_timeout=LONG, stop=stop):
        seen.append((session.id, session.change_seq))
        if len(seen) == 2:
            frozen_clock.advance(seconds=100)
            c.sessions.touch("a")
            c.sessions.update("b", SessionPatch(name="new"))
        if len(seen) == 3:
            stop.set()
    assert seen == [("a", 1), ("b", 1), ("b", 2)]
    assert [one.id for one in c.changes.follow_all(frozen_clock.now(), idle_timeout=0)] == ["a", "b"]
    with pytest.raises(MisuseError), every_backend.transaction() as tx:
        tx.conversations.changes.follow_all(began)


def test_a_session_that_changed_exactly_a_minute_ago_comes_no_second_time(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-31: it is read again, and known."""
    sessions, changes = every_backend.conversations.sessions, every_backend.conversations.changes
    sessions.create(NewSession("a"))
    stop, seen = threading.Event(), []
    for session in changes.follow_all(frozen_clock.now(), poll_interval=0, idle_timeout=LONG, stop=stop):
        seen.append(session.id)
        if session.id == "a":
            frozen_clock.advance(seconds=60)
        if len(seen) < 3:
            sessions.create(NewSession("bc"[len(seen) - 1]))
        else:
            stop.set()
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize("stop", [5, "now"])
def test_what_ends_a_following_is_an_event(every_backend: StateStore, stop: Any) -> None:
    """conversations CV-31: anything else is refused before anybody waits."""
    changes = every_backend.conversations.changes
    for follow in (
        lambda: changes.follow("s", stop=stop),
        lambda: changes.follow_all(datetime(2026, 1, 1, tzinfo=UTC), stop=stop),
        lambda: every_backend.journal.events.follow("r", stop=stop),
    ):
        with pytest.raises(InvalidValue, match="stop: expected a threading"):
            follow()


def test_a_session_that_another_program_stored_without_a_change_is_followed_too(database: Database) -> None:
    """conversations CV-31: its number of changes is 0."""
    store = database.open()
    store.conversations.sessions.create(NewSession("s"))
    with store.transaction() as tx:
        tx.connection.exec_driver_sql("UPDATE sessions SET change_seq = 0")
    found = store.conversations.changes.follow_all(database.clock.now(), idle_timeout=0)
    assert [session.id for session in found] == ["s"]


def test_a_follower_of_all_reads_no_session_again_that_changed_long_ago(
    every_backend: StateStore, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conversations CV-31: however many changed at once, and though nothing has changed since."""
    c = every_backend.conversations
    c.sessions.create(NewSession("a"))
    asked, real = list[Any](), type(c.changes).updated_sessions

    def updated(self: Any, since: Any, **more: Any) -> Any:
        asked.append(len(real(self, since, **more).items))
        frozen_clock.advance(seconds=200)
        return real(self, since, **more)

    monkeypatch.setattr(type(c.changes), "updated_sessions", updated)
    stop = threading.Event()
    began = frozen_clock.now()
    monkeypatch.setattr(stop, "wait", lambda _: stop.set() if len(asked) > 3 else None)
    assert [one.id for one in c.changes.follow_all(began, poll_interval=0, stop=stop)] == ["a"]
    assert asked == [1, 1, 0, 0]


@pytest.mark.parametrize("where", ["changes", "exchange"])
def test_an_interval_is_checked_also_where_nobody_has_to_wait(every_backend: StateStore, where: str) -> None:
    """conversations CV-30, CV-34."""
    c, wrong = every_backend.conversations, cast("Any", "x")
    c.sessions.create(NewSession("a"))
    with pytest.raises(InvalidValue, match="poll_interval"):
        getattr(c, where).wait("a", timeout=0, poll_interval=wrong)


async def _watched(opened: StateStore, session_id: str) -> Any:
    store = AsyncStateStore(opened)
    c = store.conversations
    told: list[Change] = []
    c.changes.subscribe(told.append)
    waiting = asyncio.create_task(c.changes.wait(session_id, 2, timeout=LONG, poll_interval=0.01))
    await c.lifecycle.transition(session_id, "running")
    [news] = await waiting
    every = [one.id async for one in c.changes.follow_all(FIRST, idle_timeout=0)]
    assert every == [one.id for one in await c.changes.updated_sessions(FIRST)] == [session_id]
    followed = [one.seq async for one in c.changes.follow(session_id, idle_timeout=0)]
    return news, told, followed, await c.changes.wait(session_id, 3, timeout=0), await c.changes.head(session_id)


def test_a_change_that_comes_after_the_first_look_ends_a_waiting_coroutine(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conversations CV-31."""
    session_id = begun(every_backend).session_id

    async def wait(after: int, seconds: float) -> list[int]:
        changes = AsyncStateStore(every_backend).conversations.changes
        return [change.seq for change in await changes.wait(session_id, after, timeout=seconds, poll_interval=0.01)]

    assert asyncio.run(wait(2, 0.01)) == []
    lifecycle = every_backend.conversations.lifecycle
    happened = before(monkeypatch, Waker, "wait_for_arrival", lambda: lifecycle.transition(session_id, "running"))
    assert asyncio.run(wait(2, LONG)) == [3]
    assert happened


def test_the_same_from_coroutines(every_backend: StateStore) -> None:
    """conversations CV-30, CV-31."""
    branch = begun(every_backend)
    news, told, followed, nothing, head = asyncio.run(_watched(every_backend, branch.session_id))
    assert ([news], followed, len(nothing), head) == (told, [1, 2, 3], 0, 3)
