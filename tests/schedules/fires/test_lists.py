"""Lists of fires, and what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.schedules.steps import at
from support.stored_words import unguarded_words
from support.workflows.steps import Raw, all_pages

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.schedules import FireError, FireOutcome, FireSummary
from lastlight_state.testing import Database, FrozenClock

FAILED = FireOutcome("failed", error="no")


def test_fires_are_listed_newest_first_page_after_page(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-14: list."""
    fires = store.schedules.fires
    ids = []
    for i in range(7):
        frozen_clock.advance(seconds=i % 2)
        ids.append(fires.create(f"cron {i % 2}", owner="worker-1").fire_id)
    assert [fire.id for fire in all_pages(fires.list, limit=2)] == ids[::-1]
    assert [fire.id for fire in all_pages(fires.list, limit=2, cron_name="cron 1")] == ids[1::2][::-1]
    [first] = fires.list(limit=1)
    assert FireSummary.model_validate_json(first.model_dump_json()) == first
    assert not {"payload", "error"} & set(FireSummary.model_fields)


def test_fires_are_found_by_status_source_and_start(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-14: list; one status or many."""
    fires = store.schedules.fires
    early = fires.create("a", owner="worker-1")
    fires.finish(early, FAILED)
    frozen_clock.advance(seconds=1)
    since = frozen_clock.now()
    late = fires.create("a", owner="worker-1", source="backfill", scheduled_for=at("2026-02-01T00:00Z"))
    ended = fires.create("b", owner="worker-1")
    fires.finish(ended, FireOutcome())

    def found(**given: Any) -> set[str]:
        return {fire.id for fire in fires.list(**given)}

    assert found(status="running") == found(status=["running"]) == {late.fire_id}
    assert found(status={"ok", "failed"}) == {early.fire_id, ended.fire_id}
    assert found(status=[]) == set()
    assert found(source="backfill") == {late.fire_id}
    assert found(since=since) == {late.fire_id, ended.fire_id}
    assert found(cron_name="a", status=("failed", "running"), since=since) == {late.fire_id}


def test_fires_are_counted_by_day_and_status(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-16: days of UTC, today last, of all crons or of one; no fire of the future."""
    fires = store.schedules.fires
    midnight = frozen_clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    frozen_clock.set(midnight + timedelta(days=1, milliseconds=-1))
    fires.finish(fires.create("a", owner="worker-1"), FAILED)
    fires.create("a", owner="worker-1")
    frozen_clock.advance(seconds=0.001)
    fires.finish(fires.create("b", owner="worker-1"), FAILED)
    frozen_clock.advance(seconds=86_400)

    def counts(days: int, **given: Any) -> list[dict[str, int]]:
        return [day.counts for day in fires.daily(days, **given)]

    assert counts(4) == [{}, {"failed": 1, "running": 1}, {"failed": 1}, {}]
    assert counts(2) == [{"failed": 1}, {}]
    assert counts(3, cron_name="b") == [{}, {"failed": 1}, {}]
    assert [day.start for day in fires.daily(2)] == [midnight + timedelta(days=1), midnight + timedelta(days=2)]
    frozen_clock.set(midnight)
    assert counts(1) == [{}]
    for bad in (0, 367):
        with pytest.raises(InvalidValue):
            fires.daily(bad)


def test_a_status_that_cannot_be_read_hides_no_other_count(sqlite_database: Database) -> None:
    """schedules F-16: on SQLite, where a cell may hold anything."""
    fires = sqlite_database.open().schedules.fires
    for cron in ("a", "b"):
        fires.create(cron, owner="worker-1")
    raw = Raw(sqlite_database)
    with unguarded_words("sqlite", raw):
        raw("UPDATE cron_fires SET status = x'ff00' WHERE cron_name = 'b'")
    assert [day.counts for day in fires.daily(1)] == [{"running": 1}]


def test_a_status_of_a_newer_version_is_read_as_it_is(store: StateStore, raw: Raw) -> None:
    """schedules C-34."""
    fires = store.schedules.fires
    claim = fires.create("tidy", owner="worker-1")
    with unguarded_words(raw.name, raw):
        raw("UPDATE cron_fires SET status = 'postponed' WHERE id = ?", claim.fire_id)
    assert fires.get(claim.fire_id).status == "postponed"
    assert fires.latest(["tidy"])["tidy"].status == "postponed"
    assert fires.health(["tidy"])["tidy"].failure_streak == 0


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("create", {"cron_name": " "}),
    ("create", {"cron_name": "x" * 201}),
    ("create", {"owner": ""}),
    ("create", {"source": "cron"}),
    ("create", {"source": "schedule"}),
    ("create", {"scheduled_for": at("2026-02-01T00:00Z")}),
    ("create", {"source": "backfill", "scheduled_for": datetime(2026, 2, 1)}),  # noqa: DTZ001 - refused for that
    ("create", {"lease": timedelta(milliseconds=999)}),
    ("create", {"lease": timedelta(hours=24, milliseconds=1)}),
    ("create", {"actor": "\n"}),
    ("take_stale", {"owner": "x", "limit": 0}),
    ("take_stale", {"owner": "x", "limit": 101}),
    ("take_stale", {"owner": "x", "max_attempts": 0}),
    ("take_stale", {"owner": "x", "max_attempts": True}),
    ("list", {"limit": 0}),
    ("list", {"limit": 501}),
    ("list", {"status": "done"}),
    ("list", {"source": "cron"}),
    ("list", {"since": datetime(2026, 2, 1)}),  # noqa: DTZ001 - refused for that
    ("latest", {"names": [" "]}),
    ("heartbeat", {"claim": "1"}),
]


def test_what_may_not_be_said_is_refused_and_nothing_is_written(state_store: StateStore) -> None:
    """schedules C-34, F-1."""
    fires = state_store.schedules.fires
    for method, said in REFUSED:
        defaults = {"cron_name": "tidy", "owner": "worker-1"} if method == "create" else {}
        with pytest.raises(InvalidValue):
            getattr(fires, method)(**{**defaults, **said})
    assert len(fires.list()) == 0


@with_each("bad", ["a\0b", "a\ud83d"], ids=["nul", "surrogate"])
def test_a_key_that_cannot_be_is_refused_alike(every_backend: StateStore, bad: str) -> None:
    """schedules C-34: by every look-up, on both databases."""
    schedules = every_backend.schedules
    forged = schedules.fires.create("tidy", owner="w").model_copy(update={"fire_id": bad})
    asks: list[Callable[[], object]] = [
        *(partial(getattr(schedules.crons, name), bad) for name in ("get", "find", "retire", "replan")),
        *(partial(getattr(schedules.overrides, name), bad) for name in ("get", "find", "clear")),
        *(partial(getattr(schedules.fires, name), bad) for name in ("get", "find")),
        *(partial(getattr(schedules.fires, name), forged) for name in ("heartbeat", "release")),
        partial(schedules.fires.finish, forged, FireOutcome()),
    ]
    for ask in asks:
        with pytest.raises(InvalidValue):
            ask()


@with_each("epoch", [2**63, True, "1", 1.0])
def test_a_claim_with_an_epoch_that_cannot_be_is_refused(state_store: StateStore, epoch: Any) -> None:
    """schedules C-34, F-3."""
    fires = state_store.schedules.fires
    forged = fires.create("tidy", owner="w").model_copy(update={"epoch": epoch})
    for ask in (fires.heartbeat, fires.release, partial(fires.finish, outcome=FireOutcome())):
        with pytest.raises(InvalidValue, match=r"^claim\.epoch: "):
            ask(forged)


def test_an_outcome_that_may_not_be_said_leaves_the_fire_running(state_store: StateStore) -> None:
    """schedules F-6, C-34."""
    fires = state_store.schedules.fires
    claim = fires.create("tidy", owner="worker-1")
    refused: list[Any] = [
        "ok",
        FireOutcome("running"),  # type: ignore[arg-type]
        FireOutcome("failed"),
        FireOutcome(dispatched=-1),
        FireOutcome(scanned=True),
        FireOutcome(eligible=1.0),  # type: ignore[arg-type]
        FireOutcome("failed", error=ValueError("no")),  # type: ignore[arg-type]
        FireOutcome("failed", error=FireError("no", detail=float("nan"))),
    ]
    for outcome in refused:
        with pytest.raises(InvalidValue):
            fires.finish(claim, outcome)
    for outcome in (
        FireOutcome(note="x" * 1025),
        FireOutcome("failed", error="x" * 16_385),
        FireOutcome("failed", error=FireError("no", detail=["x" * 16_384])),
    ):
        with pytest.raises(PayloadTooLarge):
            fires.finish(claim, outcome)
    assert fires.get(claim.fire_id).status == "running"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot say")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\0" * 1_000_000),
        ValueError("\N{GRINNING FACE}" * 5_000),
        ValueError("\ud800 and more"),
        ValueError('\n"\\' * 4_000),
        type("N" * 500, (Exception,), {})("x"),
        Mute(),
    ],
    ids=["control", "wide", "surrogate", "escaped", "long name", "mute"],
)
def test_whatever_an_exception_says_can_be_stored(state_store: StateStore, error: Exception) -> None:
    """schedules F-6."""
    fires = state_store.schedules.fires
    claim = fires.create("tidy", owner="worker-1")
    told = FireError.of(error, detail={"run": "r1"})
    stored = fires.finish(claim, FireOutcome("failed", error=told)).error
    assert stored == {"type": told.type, "message": told.message, "detail": {"run": "r1"}}
    assert len(told.message) <= 4_000
