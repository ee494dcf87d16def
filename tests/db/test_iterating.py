"""`iterate` and `aiterate`: all pages of a list."""

from __future__ import annotations

import asyncio

import pytest
from support.each import with_each
from support.guards import unguarded
from support.workflows.steps import started

from lastlight_state import AsyncStateStore, Conflict, StateStore, aiterate, iterate
from lastlight_state.db.rows.records import Page
from lastlight_state.testing import Database


def test_all_pages_are_gone_through(every_backend: StateStore) -> None:
    """house H-42: with the list's own arguments; each page is read when it is needed; damaged rows are passed over."""
    runs = [started(every_backend).id for _ in range(5)]
    asked: list[object] = []

    def listing(**given: object) -> object:
        asked.append(given.get("page_token"))
        return every_backend.workflows.runs.list(**given)  # type: ignore[arg-type]

    found = iterate(listing, statuses=["running"], limit=2)  # type: ignore[arg-type,var-annotated]
    assert asked == []
    assert next(found).id == runs[4]
    assert len(asked) == 1
    assert [run.id for run in found] == runs[3::-1]
    assert len(asked) == 3
    assert [run.id for run in iterate(every_backend.workflows.runs.list, statuses=["paused"])] == []


def test_rows_that_cannot_be_read_are_logged_and_passed_over(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """house H-42."""
    store = sqlite_database.open()
    runs = [started(store).id for _ in range(3)]
    unguarded(sqlite_database).execute("UPDATE workflow_runs SET started_at = 'soon' WHERE id = ?", [runs[1]])
    assert [run.id for run in iterate(store.workflows.runs.list, limit=1)] == [runs[2], runs[0]]
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "passed over a row that cannot be read" in record.getMessage()
    assert runs[1] in record.getMessage()


def test_coroutines_go_through_all_pages(database: Database) -> None:
    """house H-42."""

    async def walk() -> list[str]:
        async with await AsyncStateStore.open(database.url, clock=database.clock) as store:
            return [run.id async for run in aiterate(store.workflows.runs.list, limit=2)]

    runs = [started(database.open()).id for _ in range(5)]
    assert asyncio.run(walk()) == runs[::-1]


@with_each(("before", "circle"), [(0, 1), (0, 2), (1, 1), (5, 3), (40, 7)])
def test_a_walk_that_comes_back_to_a_page_stops(before: int, circle: int) -> None:
    """house H-42: however many pages lie before the circle and in it; without it the walk would never end."""

    def listing(*, page_token: str | None = None) -> Page[int]:
        at = int(page_token or "0")
        following = before if at == before + circle - 1 else at + 1
        return Page(items=(at,), next_page_token=str(following))

    async def listed(*, page_token: str | None = None) -> Page[int]:
        return listing(page_token=page_token)

    async def walk() -> list[int]:
        return [item async for item in aiterate(listed)]

    with pytest.raises(Conflict, match="leads back to a page") as caught:
        list(iterate(listing))
    assert caught.value.code == "walk_repeats"
    with pytest.raises(Conflict, match="leads back to a page"):
        asyncio.run(walk())


def test_a_long_walk_without_a_circle_goes_to_its_end() -> None:
    """house H-42."""

    def listing(*, page_token: str | None = None) -> Page[int]:
        at = int(page_token or "0")
        return Page(items=(at,), next_page_token=str(at + 1) if at < 200 else None)

    assert list(iterate(listing)) == list(range(201))
