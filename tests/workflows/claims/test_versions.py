"""Takes, admissions and waits may keep to runs that were begun by certain versions of the application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.workflows.plans import plan_of

from lastlight_state.errors import InvalidValue
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Provenance, RunOptions, Trigger
from lastlight_state.workflows.claims import lists
from lastlight_state.workflows.queue import statements as queue

VERSIONS = ("1", "2", "3", None)
MINE = ["1", "2"]


def new(store: Any, version: str | None, **options: Any) -> str:
    made = RunOptions(provenance=Provenance(app_version=version), **options)
    run: str = store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=made).id
    return run


def versions_of(store: Any, claims: Any) -> set[str | None]:
    return {store.workflows.runs.get(claim.run_id).app_version for claim in claims}


def offered(store: Any, clock: FrozenClock) -> None:
    for version in VERSIONS:
        new(store, version, offered=True)


def abandoned(store: Any, clock: FrozenClock) -> None:
    offered(store, clock)
    store.workflows.claims.take_next(owner="gone", lease=timedelta(seconds=1), limit=4)
    clock.advance(timedelta(seconds=2))


def due(store: Any, clock: FrozenClock) -> None:
    offered(store, clock)
    for claim in store.workflows.claims.take_next(owner="w", limit=4):
        store.workflows.waits.pause(claim.run_id, until=clock.now() + timedelta(seconds=1), claim=claim)
    clock.advance(timedelta(seconds=2))


@pytest.mark.parametrize("there", [offered, abandoned, due])
def test_a_take_leaves_runs_of_other_versions_alone(store: Any, frozen_clock: FrozenClock, there: Any) -> None:
    """workflows W-218: and takes those without a version; without the filter it takes all."""
    there(store, frozen_clock)
    claims = store.workflows.claims
    taken = claims.take_next(owner="mine", limit=10, workflow_names=["review"], app_versions=MINE)
    assert versions_of(store, taken) == {"1", "2", None}
    assert not claims.wait(timeout=0, app_versions=MINE)
    assert claims.wait(timeout=0, app_versions=["3"])
    assert versions_of(store, claims.take_next(owner="any", limit=10)) == {"3"}


@pytest.mark.parametrize("caps", [None, {"review": 10}])
def test_an_admission_leaves_runs_of_other_versions_in_line(store: Any, caps: dict[str, int] | None) -> None:
    """workflows W-218: those behind them are admitted, and the caps count all."""
    for version in ("3", "1", None):
        new(store, version, status="queued")
    line = store.workflows.queue
    given: Any = {"workflow_names": ["review"], "workflow_caps": caps, "app_versions": MINE}
    assert line.wait(cap=10, timeout=0, **given)
    assert versions_of(store, line.admit_next(cap=10, owner="mine", limit=10, **given)) == {"1", None}
    assert not line.wait(cap=10, timeout=0, claimable=True, **given)
    assert line.admit_next(cap=2, owner="any", limit=10) == ()
    assert versions_of(store, line.admit_next(cap=10, owner="any", limit=10)) == {"3"}


@with_each("wrong", [[], "1", [""], ["x" * 2001], [1]], ids=str)
def test_what_is_no_list_of_versions_is_refused(store: Any, wrong: Any) -> None:
    """workflows W-218."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.workflows.claims.take_next(owner="w", app_versions=wrong),
        lambda: store.workflows.queue.admit_next(cap=1, owner="w", app_versions=wrong),
    )
    for call in calls:
        with pytest.raises(InvalidValue, match="app_versions"):
            call()


def looks() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each statement with a filter by version, and its parameters."""
    for ranges in (lists.TAKEN_NEXT, lists.SOUND_NEXT):
        yield ranges.of({"workflow_name": ["review"], "app_version": MINE}, False, 50)
    yield queue.FIRST.of({"of": ["review"], "versions": MINE})


def test_a_filter_by_version_reads_no_more_than_without(database: Database) -> None:
    """workflows W-218: on SQLite the index of live runs, or of the line, holds the version."""
    store, now = database.open(), database.clock.now()
    for statement, given in looks():
        values = {**lists.moment(now), "limit": 1, **given}
        plan = plan_of(database, store, statement, values, in_order=True)
        assert "Seq Scan on workflow_runs" not in plan.text
        if database.name == "sqlite":
            reads = [line for line in plan.text.splitlines() if "workflow_runs" in line]
            assert reads
            assert all("INDEX ix_workflow_runs_" in line for line in reads), plan
