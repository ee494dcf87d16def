"""The search for errors: literal text, ASCII case ignored, alike on both databases, within its window."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.workflows.steps import all_pages, started

from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Failure

START = FrozenClock().now()


def failed(store: Any, error: str, skill: str = "deploy:plan", run_id: str | None = None) -> str:
    execution = store.workflows.executions.start(skill, run_id=run_id or started(store).id)
    ended: str = store.workflows.executions.finish(execution.id, "failed", failure=Failure(error)).id
    return ended


ERRORS = {
    "per cent": "100% sure",
    "no per cent": "1000 sure",
    "under": "a_b",
    "no under": "axb",
    "back": "C:\\new",
    "upper": "TIMEOUT while Waiting\nfor É",
    "lower": "timeout",
    "quote": "it's",
    "kelvin": "\u212a",
    "dotless": "\u0131stanbul",
}
FOUND = {
    "0%": {"per cent"},
    "%": {"per cent"},
    "_": {"under"},
    "A_B": {"under"},
    "\\N": {"back"},
    "Timeout": {"upper", "lower"},
    "waiting\nFOR": {"upper"},
    "É": {"upper"},
    "é": set(),
    "'": {"quote"},
    "K": set(),
    "İ": set(),
    "istanbul": set(),
    "ISTANBUL": set(),
}


def test_text_means_itself_in_either_ascii_case(store: StateStore) -> None:
    """workflows W-96: ``%`` and ``_`` are letters, and no letter but ASCII has another case."""
    run = started(store)
    names = {failed(store, error, "x:0", run.id): name for name, error in ERRORS.items()}
    for text, expected in FOUND.items():
        found = store.workflows.lookups.search_errors(text, since=START)
        assert {names[each.id] for each in found} == expected, text


def test_skills_are_searched_too_and_nothing_before_the_window(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96: since is inclusive; one without an error is found by its skill."""
    failed(store, "boom")
    since = frozen_clock.advance(seconds=1)
    found = [failed(store, "a Boom"), failed(store, "quiet", "boom:plan")]
    flying = store.workflows.executions.start("boom:fix", run_id=started(store).id).id
    failed(store, "other")
    search = store.workflows.lookups.search_errors
    assert {each.id for each in search("boom", since=since)} == {*found, flying}
    assert search("boom", since=since + timedelta(milliseconds=1)).items == ()


def test_pages_of_a_search_miss_nothing(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96, W-101."""
    run = started(store)
    made = []
    for index in range(7):
        frozen_clock.advance(seconds=index % 2)
        made.append(failed(store, "boom" if index % 3 else "fine", run_id=run.id))
    search = store.workflows.lookups.search_errors
    expected = [found.id for found in search("boom", since=START)]
    for limit in (1, 3):
        assert [each.id for each in all_pages(search, text="boom", since=START, limit=limit)] == expected
    token = search("boom", since=START, limit=1).next_page_token
    with pytest.raises(InvalidValue, match="another filter"):
        search("bang", since=START, page_token=token)


def test_a_search_for_nothing_or_without_a_bound_is_refused(sqlite_database: Database) -> None:
    """workflows W-96."""
    search = sqlite_database.open().workflows.lookups.search_errors
    for text in ("", "  ", "a\0b", "\ud83d", 7):
        with pytest.raises(InvalidValue):
            search(text, since=START)  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge):
        search("x" * 257, since=START)
    with pytest.raises(InvalidValue):
        search("x", since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError):
        search("x")  # type: ignore[call-arg]
