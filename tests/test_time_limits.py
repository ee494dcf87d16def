"""Calls with a ``timeout`` on a database that somebody else holds: each ends in about that time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.deadlines import WORK_SECONDS, held, held_file, promised
from support.hostile import methods, taken
from support.hostile_rows import KNOWN, fill

from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.backends.waiting import LEAST_LOOK, Deadline, shorter_wait
from lastlight_state.errors import StateError
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.testing import Database

#: A call without a ``timeout`` waits for one lock as long as this.
PATIENT = Settings(busy_timeout=8.0, lock_timeout=8.0, queue_timeout=8.0, journal_mode="delete")
SECONDS = 1.0
#: The arguments that limit how long a call lasts. How long a follower may be idle is another matter.
LIMITS = ("timeout", "wait", "lock_timeout")
#: Some of the calls that the tests must find.
SOME = {"conversations.exchange.wait", "journal.signals.try_take", "outputs.query.rows", "workflows.claims.wait"}
#: What an extra attempt takes, of calls that are more than one unit.
LOCK_SECONDS = 1.5


def limited(store: StateStore) -> Iterator[tuple[str, dict[str, Any]]]:
    """The public methods of repositories that have a limit of time, with plausible arguments."""
    for path, method in methods(store):
        limits = {name: SECONDS for name in LIMITS if name in inspect.signature(method).parameters}
        if limits:
            yield path, taken(method, {**KNOWN, "sql": "SELECT count(*) FROM workflow_runs"})[1] | limits


def at(owner: Any, path: str) -> Any:
    """The method of this path."""
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def timed(call: Callable[[], object]) -> tuple[str, float]:
    """What came of a call, and after how many seconds."""
    began = time.monotonic()
    try:
        call()
    except StateError as error:
        return type(error).__name__, time.monotonic() - began
    return "made", time.monotonic() - began


async def timed_await(call: Callable[[], Awaitable[object]]) -> tuple[str, float]:
    """The same of an awaited call."""
    began = time.monotonic()
    try:
        await call()
    except StateError as error:
        return type(error).__name__, time.monotonic() - began
    return "made", time.monotonic() - began


def refuse_late(found: dict[str, tuple[str, float]], seconds: float = SECONDS) -> None:
    """Fail with the calls that took longer, and with those that were made all the same after a wait."""
    wrong = {
        path: one
        for path, one in found.items()
        if one[1] > (WORK_SECONDS if one[0] == "made" else seconds + WORK_SECONDS)
    }
    assert not wrong, wrong


@pytest.mark.slow
def test_no_call_with_a_timeout_waits_longer_for_a_held_database(database: Database) -> None:
    """backends B-195: every method of every repository that has a limit of time."""
    store = database.open(settings=PATIENT)
    fill(store)
    asked = dict(limited(store))
    assert asked.keys() >= SOME
    with held(database, store):
        found = {path: timed(partial(at(store, path), **given)) for path, given in asked.items()}
    refuse_late(found)
    assert store.workflows.queue.wait(cap=9, timeout=0) is False


@pytest.mark.slow
def test_no_awaited_call_with_a_timeout_waits_longer_for_a_held_database(database: Database) -> None:
    """backends B-195: the same calls, on worker threads."""
    opened = database.open(settings=PATIENT)
    fill(opened)

    async def calls() -> dict[str, tuple[str, float]]:
        store = AsyncStateStore(opened)
        return {path: await timed_await(partial(at(store, path), **given)) for path, given in limited(opened)}

    with held(database, opened):
        found = asyncio.run(calls())
    refuse_late(found, SECONDS + LEAST_LOOK)


@pytest.mark.parametrize("file", ["inbound.db", "outbound.db"])
def test_no_wait_for_a_mailbox_with_a_held_file_is_longer_than_its_timeout(tmp_path: Path, file: str) -> None:
    """backends B-195: on both sides."""
    boxes = Mailboxes(tmp_path, settings=PATIENT)
    boxes.create("g", "s")
    waits = {"host": boxes.host("g", "s").outbox.wait, "agent": boxes.agent("g", "s").inbox.wait}
    with held_file(tmp_path / "g" / "s" / file):
        found = {side: timed(partial(wait, timedelta(seconds=SECONDS))) for side, wait in waits.items()}
    refuse_late(found)


@pytest.mark.slow
def test_a_list_that_first_expires_what_is_overdue_waits_no_longer_than_others(database: Database) -> None:
    """backends B-90: both units of the call wait together as long as one."""
    settings = PATIENT.model_copy(
        update={"busy_timeout": LOCK_SECONDS, "lock_timeout": LOCK_SECONDS, "retry_seconds": 0.2}
    )
    store = database.open(settings=settings)
    fill(store)
    workflows = store.workflows
    lists: dict[str, Callable[[], object]] = {
        "approvals": workflows.approvals.list_pending,
        "human_requests": workflows.human_requests.list_pending,
        "claims": workflows.claims.list_claimable,
    }
    with held(database, store):
        found = {name: timed(listed) for name, listed in lists.items()}
    refuse_late(found, promised(settings, LOCK_SECONDS))
    assert {name: timed(listed)[0] for name, listed in lists.items()} == dict.fromkeys(lists, "made")


def test_of_two_deadlines_the_sooner_holds_until_its_block_ends() -> None:
    """backends B-90: a call within a call."""
    assert shorter_wait(60.0) is None
    with Deadline(50.0), Deadline(20.0):
        with Deadline(40.0):
            assert 10.0 < (shorter_wait(60.0) or 0) < 20.0
        assert 10.0 < (shorter_wait(60.0) or 0) < 20.0
    with Deadline(50.0):
        with Deadline(20.0):
            assert shorter_wait(10.0) is None
        assert 40.0 < (shorter_wait(60.0) or 0) < 50.0
    assert shorter_wait(60.0) is None


def test_a_connection_waits_as_usual_after_a_call_with_a_timeout(database: Database) -> None:
    """backends B-195: its settings are put back."""
    store = database.open(settings=PATIENT)
    setting = "SHOW lock_timeout" if database.name == "postgresql" else "PRAGMA busy_timeout"

    def told() -> str:
        with store.view() as view:
            return str(view.connection.exec_driver_sql(setting).scalar())

    before = told()
    store.workflows.queue.wait(cap=9, timeout=0)
    assert store.workflows.runs.list().items == ()
    assert told() == before
