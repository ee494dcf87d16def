"""Live pages: what they are sent, and that many cost the database what one costs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.inspector.live import Subscriber, run, subscribed, until
from support.sent import Sent, recorded

from lastlight_state import BackendUnavailable, StateStore, View
from lastlight_state.inspector import app as application, inspector
from lastlight_state.inspector.live import MOST_TOPICS, Topics
from lastlight_state.inspector.pages import now
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look every twentieth of a second."""
    monkeypatch.setattr(application, "Topics", partial(Topics, every=0.05, sign=0.2))


def started(store: StateStore, run_id: str) -> None:
    store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=run_id))


def test_what_happens_reaches_every_open_page(fresh_database: Database) -> None:
    """inspector IN-20: as HTML of the content, and again only when it has changed."""
    store = fresh_database.open()

    async def work() -> None:
        async with subscribed(inspector(store), "/", 3) as browsers:
            await until(lambda: all(browser.events for browser in browsers))
            await asyncio.sleep(0.3)
            assert [len(browser.events) for browser in browsers] == [1, 1, 1]
            await asyncio.to_thread(started, store, "the-new-run")
            await until(lambda: all(len(browser.events) == 2 for browser in browsers))
            assert all("the-new-run" in browser.events[1] for browser in browsers)
            assert "<html" not in browsers[0].events[1]

    run(work())


def test_a_hundred_open_pages_cost_the_database_what_one_costs(fresh_database: Database) -> None:
    """inspector IN-21: looks are counted by their statements; without a page there is none."""

    def looks(sent: Sent) -> int:
        return sum("approvals" in statement for statement in sent)

    async def looked(store: StateStore, sent: Sent, number: int, seconds: float | None = None) -> tuple[int, float]:
        """Return how much was looked in this time, or until there were some looks, and the time."""
        async with subscribed(inspector(store), "/", number) as browsers:
            await until(lambda: all(browser.events for browser in browsers))
            sent.clear()
            began = time.monotonic()
            await (until(lambda: looks(sent) > 10) if seconds is None else asyncio.sleep(seconds))
            return looks(sent), time.monotonic() - began

    async def work() -> None:
        with recorded(fresh_database) as (store, sent):
            alone, seconds = await looked(store, sent, 1)
            together, _ = await looked(store, sent, 100, seconds)
            assert together < alone * 10  # the machine may be slower, and the other way round, but not so much
            await asyncio.sleep(0.2)
            sent.clear()
            await asyncio.sleep(0.3)
            assert sent == []

    run(work())


def test_a_run_is_read_again_only_when_its_mark_has_changed(fresh_database: Database) -> None:
    """inspector IN-21."""

    async def work() -> None:
        with recorded(fresh_database) as (store, sent):
            started(store, "r")
            clock = fresh_database.clock
            async with subscribed(inspector(store, clock=clock), "/runs/r") as [browser]:
                await until(lambda: bool(browser.events))
                sent.clear()
                await until(lambda: len(sent) > 20)
                assert not any("run_frames" in statement for statement in sent)
                await asyncio.to_thread(store.workflows.runs.finish, "r", "succeeded")
                await until(lambda: len(browser.events) == 2)
                assert "succeeded" in browser.events[1]
                await asyncio.to_thread(store.outputs.inputs.ensure, "r", {"told": "later"})
                clock.advance(seconds=30)
                await until(lambda: "later" in browser.events[-1])


def test_a_run_whose_lease_ends_changes_at_once(fresh_database: Database) -> None:
    """inspector IN-20: nothing is written when it does."""
    store, clock = fresh_database.open(), fresh_database.clock
    clock.advance(seconds=-(clock.now().timestamp() % 30))  # a half minute begins
    started(store, "r")
    store.workflows.claims.take("r", owner="w", lease=timedelta(seconds=10))

    async def work() -> None:
        async with subscribed(inspector(store, clock=clock), "/runs/r") as [browser]:
            await until(lambda: bool(browser.events))
            clock.advance(seconds=11)
            await until(lambda: "its worker is gone" in browser.events[-1])

    run(work())

    run(work())


@pytest.mark.logs("a live page could not be made again")
def test_a_page_stays_while_the_database_is_away(fresh_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """inspector IN-20: and goes on when it is back."""
    store = fresh_database.open()
    away, failed = False, 0

    def unhealthy(moment: View) -> dict[str, Any]:
        nonlocal failed
        if away:
            failed += 1
            raise BackendUnavailable("gone", reason="unreachable")
        return found(moment)

    found = now._unhealthy
    monkeypatch.setattr(now, "_unhealthy", unhealthy)

    async def work() -> None:
        nonlocal away
        async with subscribed(inspector(store), "/") as [browser]:
            await until(lambda: bool(browser.events))
            away = True
            await until(lambda: failed > 0)
            await asyncio.to_thread(started, store, "meanwhile")
            away = False
            await until(lambda: len(browser.events) == 2)
            assert "meanwhile" in browser.events[1]

    run(work())


@pytest.mark.logs("a live page could not be made again")
def test_a_page_that_cannot_be_made_is_logged_once(fresh_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """inspector IN-20: and not again at each look, also of a run that is not there."""
    store = fresh_database.open()

    async def work() -> None:
        async with subscribed(inspector(store), "/runs/nobody"):
            await asyncio.sleep(0.5)

    run(work())
    assert [record.message for record in caplog.records] == ["a live page could not be made again"]


def test_a_browser_that_vanishes_while_it_is_sent_something_leaves_no_look(fresh_database: Database) -> None:
    """inspector IN-21: also one that reads no more."""

    async def work() -> None:
        with recorded(fresh_database) as (store, sent):
            async with subscribed(inspector(store), "/", 3) as browsers:
                for browser in browsers:
                    browser.stall()
                await until(lambda: all(browser.stalls for browser in browsers))
            await asyncio.sleep(1)  # the last look ends
            sent.clear()
            await asyncio.sleep(0.3)
            assert sent == []

    run(work())


def test_personal_data_is_hidden_in_live_pages(fresh_database: Database) -> None:
    """inspector IN-7."""
    store = fresh_database.open()
    started(store, "r")
    store.workflows.runs.cancel("r", by="zoe", reason="zoe-wrote-this")

    async def work(hide: bool) -> str:
        async with subscribed(inspector(store, hide_personal=hide), "/runs/r") as [browser]:
            await until(lambda: bool(browser.events))
            return browser.events[0]

    assert "zoe" in asyncio.run(work(hide=False))
    assert "zoe" not in asyncio.run(work(hide=True))


def test_only_so_many_different_pages_are_live(sqlite_database: Database) -> None:
    """inspector IN-22: those beyond are refused, and are shown like any other page."""
    store = sqlite_database.open()

    async def work() -> None:
        app = inspector(store)
        async with subscribed(app, "/inbox?run=0", 2) as first:
            await until(lambda: all(browser.status == 200 for browser in first))
            others: list[Subscriber] = []
            contexts = [subscribed(app, f"/inbox?run={n}") for n in range(1, MOST_TOPICS + 1)]
            for context in contexts:
                [browser] = await context.__aenter__()
                await until(lambda browser=browser: browser.status == 503 or bool(browser.events))  # type: ignore[misc]
                others.append(browser)
            assert [browser.status for browser in others] == [200] * (MOST_TOPICS - 1) + [503]
            for context in contexts:
                await context.__aexit__(None, None, None)

    run(work())


def test_values_that_a_page_does_not_read_make_no_other_live_page(sqlite_database: Database) -> None:
    """inspector IN-22: as many as there are."""
    app = inspector(sqlite_database.open())

    async def work() -> None:
        async with AsyncExitStack() as stack:
            for n in range(MOST_TOPICS + 1):
                [browser] = await stack.enter_async_context(subscribed(app, f"/?n={n}&limit={n}"))
                await until(lambda browser=browser: bool(browser.events))  # type: ignore[misc]
            [other] = await stack.enter_async_context(subscribed(app, "/inbox?order=newest&order=oldest"))
            await until(lambda: bool(other.events))

    run(work())


def test_a_page_that_is_not_live_says_so(filled: StateStore) -> None:
    """inspector IN-22."""
    answer = TestClient(inspector(filled)).get("/runs", headers={"accept": "text/event-stream"})
    assert answer.status_code == 406


@pytest.mark.logs("a page failed")
def test_a_template_that_fails_is_a_page_as_well(filled: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """inspector IN-3."""
    monkeypatch.setattr(now, "_unhealthy", lambda _: {"items": [{}], "next_page_token": None})
    assert "UndefinedError" in TestClient(inspector(filled)).get("/").text


@pytest.mark.logs("a page failed")
def test_a_defect_is_a_page_and_is_logged(filled: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """inspector IN-3: the page does not tell more than its kind."""

    def fails(_: object) -> None:
        raise ZeroDivisionError("secret of the program")

    monkeypatch.setattr(now, "_unhealthy", fails)
    answer = TestClient(inspector(filled)).get("/")
    assert (answer.status_code, "ZeroDivisionError" in answer.text) == (500, True)
    assert "secret of the program" not in answer.text
