"""No report, ours or another program's, makes a total fail on either database."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows import Trigger, Usage
from lastlight_state.workflows.words import MOST_REPORTED

COUNTS = (
    "turns",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "api_duration_ms",
)
SUMMED = ("cost_micros", "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def reporting(count: int, **given: Any) -> Usage:
    """A report of this number everywhere."""
    return Usage(**dict.fromkeys(COUNTS, count), **given)  # type: ignore[arg-type]


def only(name: str, count: int) -> Usage:
    """A report of one count."""
    given: Any = {name: count}
    return Usage(**given)


def every_total(store: StateStore, run_id: str) -> list[Any]:
    """What each list and rollup says of the one run's executions."""
    usage, since = store.workflows.usage, store.workflows.runs.get(run_id).started_at
    return [
        *(run.totals for run in store.workflows.runs.list()),
        *(run.totals for run in store.workflows.runs.list(order="active_first")),
        usage.for_run(run_id),
        *(
            usage.by(one, since=since)[0]
            for one in ("workflow", "repo", "model", "trigger_type", "skill", "triggered_by")
        ),
        usage.stats(since=since).totals,
        usage.stats(since=since).today,
        usage.daily(days=1)[0],
        usage.hourly(hours=1)[0],
    ]


@with_each("name", COUNTS)
def test_a_count_beyond_the_most_that_can_be_used_is_refused(store: StateStore, name: str) -> None:
    """workflows W-140."""
    run = started(store)
    execution = store.workflows.executions.start("deploy:plan", run_id=run.id)
    for value in (MOST_REPORTED + 1, 2**63 - 1):
        with pytest.raises(InvalidValue, match=rf"usage\.{name}"):
            store.workflows.executions.finish(execution.id, "succeeded", usage=only(name, value))
    assert store.workflows.executions.get(execution.id) == execution
    usage = only(name, MOST_REPORTED)
    assert getattr(store.workflows.executions.update(execution.id, usage=usage), name) == MOST_REPORTED


def test_reports_of_the_most_that_is_accepted_are_added_up_everywhere(store: StateStore) -> None:
    """workflows W-140."""
    run = started(store)
    most = reporting(MOST_REPORTED, cost_usd=Decimal(1_000_000))
    for _ in range(3):
        execution = store.workflows.executions.start("deploy:plan", run_id=run.id)
        store.workflows.executions.finish(execution.id, "succeeded", usage=most)
    for totals in every_total(store, run.id):
        assert totals.cost_usd == 3_000_000
        assert (totals.input_tokens, totals.output_tokens) == (3 * MOST_REPORTED, 3 * MOST_REPORTED)


@pytest.mark.parametrize("column", SUMMED)
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), MOST_REPORTED + 1])
def test_what_another_program_overstated_counts_nothing_and_is_named_by_the_doctor(
    every_backend: StateStore, raw: Raw, column: str, value: int
) -> None:
    """workflows W-140: the row stays readable, and what it says elsewhere counts."""
    run = started(every_backend)
    executions = every_backend.workflows.executions
    wrong = [executions.start("deploy:plan", run_id=run.id).id for _ in range(2)]
    right = executions.start("deploy:plan", run_id=run.id).id
    for one in (*wrong, right):
        executions.update(one, usage=reporting(7, cost_usd=Decimal("0.000007")))
    for one in wrong:
        raw(f"UPDATE executions SET {column} = ? WHERE id = ?", value, one)
    sums = {name: 7 if name == column else 21 for name in SUMMED}
    for totals in every_total(every_backend, run.id):
        assert totals.executions == 3
        assert totals.cost_usd * 1_000_000 == sums["cost_micros"]
        assert {name: getattr(totals, name) for name in SUMMED[1:]} == {name: sums[name] for name in SUMMED[1:]}
    [finding] = [found for found in every_backend.maintenance.doctor.examine().findings if found.check == "DOC-16"]
    assert (finding.subject, set(finding.samples)) == ("executions", set(wrong))
    assert len(executions.list(run_id=run.id).items) == 3


def test_a_chat_thread_with_an_overstated_turn_is_listed(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-140."""
    executions = every_backend.workflows.executions
    for _ in range(2):
        turn = executions.start("chat", trigger=Trigger("thread-1", type="chat"))
        raw(
            "UPDATE executions SET input_tokens = ?, output_tokens = 5, cost_usd = 1e30 WHERE id = ?",
            2**63 - 1,
            turn.id,
        )
    [thread] = every_backend.workflows.usage.list_threads()
    assert (thread.input_tokens, thread.output_tokens, thread.cost_usd) == (0, 10, Decimal(0))


def test_a_cost_of_another_programs_float_alone_is_named_where_it_counts_nothing(
    every_backend: StateStore, raw: Raw
) -> None:
    """workflows W-140."""
    turn = every_backend.workflows.executions.start("chat", trigger=Trigger("thread-1", type="chat"))
    for dollars, named in ((1e6, False), (1.000001e6, True), (-1e300, True)):
        raw("UPDATE executions SET cost_usd = ? WHERE id = ?", dollars, turn.id)
        found = every_backend.maintenance.doctor.examine(only=["DOC-16"]).findings
        assert [one.samples for one in found] == [(turn.id,)] * named
