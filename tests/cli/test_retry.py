"""``retry`` from the command line: failed runs begin again."""

from __future__ import annotations

import pytest
from support.cli.calls import Said, lastlight_state
from support.each import with_each

from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, RunOptions, Trigger


@pytest.fixture
def opened(database: Database) -> StateStore:
    """Return a store with three failed runs of two workflows and one that succeeded."""
    store = database.open()
    for key, workflow in (("a", "w"), ("b", "w"), ("c", "v"), ("d", "w")):
        store.workflows.runs.create(workflow, trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=key))
        if key == "d":
            store.workflows.runs.finish(key, "succeeded")
        else:
            store.workflows.runs.finish(key, "failed", failure=Failure(f"{key} broke"))
    return store


def said(database: Database, *words: object) -> Said:
    return lastlight_state(*words, "--url", database.url, "--json")


def ids(rows: list[dict[str, str]]) -> list[str]:
    return sorted(row["id"] for row in rows)


def statuses(store: StateStore) -> str:
    return " ".join(store.workflows.runs.get(key).status for key in "abcd")


def test_one_failed_run_begins_again(database: Database, opened: StateStore) -> None:
    """maintenance OP-110: its history names who did it, and why."""
    assert ids(said(database, "retry", "a", "--by", "ana", "--reason", "it is back").data["retried"]) == ["a"]
    last = opened.workflows.lookups.list_transitions("a").items[0]
    assert (last.to_status, last.actor, last.reason) == ("running", "ana", "run.restarted")
    assert (last.detail or "").startswith("it is back; ended with: a broke")
    assert statuses(opened) == "running failed failed succeeded"


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--workflow", "w"], "ab"),
        (["--since", "2026-01-01"], "abc"),
        (["--until", "2026-01-01"], ""),
        (["--repo", "o/r"], ""),
    ],
)
def test_all_failed_runs_that_a_filter_names_begin_again(
    database: Database, opened: StateStore, filters: list[str], found: str
) -> None:
    """maintenance OP-110: what a dry run names, and nothing else."""
    before = statuses(opened)
    planned = said(database, "retry", *filters, "--dry-run")
    assert (ids(planned.data["retried"]), statuses(opened)) == ([*found], before)
    done = said(database, "retry", *filters, "--yes")
    assert (done.code, ids(done.data["retried"]), done.data["left"]) == (0, [*found], [])
    assert [opened.workflows.runs.get(key).status for key in "abc"] == [
        "running" if key in found else "failed" for key in "abc"
    ]


def test_a_run_that_may_not_begin_again_is_left_and_named(database: Database, opened: StateStore) -> None:
    """maintenance OP-110: the others begin all the same."""
    opened.workflows.runs.allow_restarts("a", 0, by="ana", reason="no more")
    done = said(database, "retry", "--workflow", "w", "--yes")
    assert (done.code, done.error) == (1, "restart_limit")
    told = lastlight_state("retry", "a", "--url", database.url)
    assert told.out.splitlines()[0] == "retried 0 runs, left 1"
    assert statuses(opened) == "failed running failed succeeded"


def test_a_dry_run_tells_how_each_run_ended(database: Database, opened: StateStore) -> None:
    """maintenance OP-110"""
    first, _, *rows = lastlight_state("retry", "--workflow", "v", "--dry-run", "--url", database.url).out.splitlines()
    assert first == "would retry 1 run"
    assert "c broke" in "\n".join(rows)


@with_each(("words", "code"), [([], 2), (["a", "--workflow", "w"], 2), (["absent"], 1), (["--since", "x"], 2)])
def test_what_makes_no_sense_is_refused(database: Database, opened: StateStore, words: list[str], code: int) -> None:
    """maintenance OP-74, OP-110"""
    assert said(database, "retry", *words).code == code
    assert statuses(opened) == "failed failed failed succeeded"


def test_many_are_not_retried_without_being_asked_about(database: Database, opened: StateStore) -> None:
    """maintenance OP-110"""
    assert said(database, "retry", "--workflow", "w").error == "not_confirmed"
    assert statuses(opened) == "failed failed failed succeeded"
