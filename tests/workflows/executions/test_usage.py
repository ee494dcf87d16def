"""What an execution reports while it is in flight, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from support.workflows.steps import Raw, started

from lastlight_state.errors import Conflict, InvalidValue, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Execution, Usage

COUNTS = ("turns", "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def begun(store: StateStore) -> Execution:
    return store.workflows.executions.start("deploy:plan", run_id=started(store).id)


def test_an_update_sets_what_is_given_and_a_sign_of_life(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-51."""
    executions, execution = store.workflows.executions, begun(store)
    assert execution.heartbeat_at is None
    at = frozen_clock.advance(seconds=1)
    updated = executions.update(execution.id, session_id="s-1", checkpoint={"done": [1, 2]})
    assert (updated.session_id, updated.checkpoint, updated.heartbeat_at) == ("s-1", {"done": [1, 2]}, at)
    frozen_clock.advance(seconds=1)
    later = executions.update(execution.id, usage=Usage(turns=1), session_id="s-2")
    assert (later.session_id, later.checkpoint, later.turns) == ("s-2", {"done": [1, 2]}, 1)
    assert executions.get(execution.id) == later


def test_every_combination_of_facts_can_be_reported(store: StateStore) -> None:
    """workflows W-51."""
    executions = store.workflows.executions
    for session, checkpoint, usage in product((None, "s-1"), (None, [1]), (None, Usage(turns=3))):
        updated = executions.update(begun(store).id, session_id=session, checkpoint=checkpoint, usage=usage)
        assert (updated.session_id, updated.checkpoint) == (session, checkpoint)
        assert updated.turns == (usage.turns if usage else None)
        assert updated.heartbeat_at is not None


def test_a_sign_of_life_never_moves_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5."""
    execution = begun(store)
    at = frozen_clock.now()
    store.workflows.executions.update(execution.id)
    frozen_clock.advance(seconds=-60)
    assert store.workflows.executions.update(execution.id).heartbeat_at == at
    assert store.workflows.executions.update(execution.id, usage=Usage(turns=1)).heartbeat_at == at


def test_a_report_that_arrives_twice_counts_once(store: StateStore) -> None:
    """workflows W-51, case 27."""
    executions, execution = store.workflows.executions, begun(store)
    usage = Usage(10, 11, 12, 13, 14, 15, Decimal("0.25"), "m-1", "p-1")
    first = executions.update(execution.id, usage=usage)
    assert [getattr(first, name) for name in COUNTS] == [10, 11, 12, 13, 14]
    assert (first.api_duration_ms, first.cost_usd, first.model, first.price_table) == (
        15,
        Decimal("0.25"),
        "m-1",
        "p-1",
    )
    assert executions.update(execution.id, usage=usage) == first
    smaller = Usage(0, 1, 2, 3, 4, 5, Decimal("0.1"))
    assert executions.update(execution.id, usage=smaller) == first


def test_each_count_grows_by_itself(store: StateStore) -> None:
    """workflows W-51."""
    executions, execution = store.workflows.executions, begun(store)
    executions.update(execution.id, usage=Usage(turns=5, input_tokens=100, cost_usd=Decimal(1)))
    grown = executions.update(execution.id, usage=Usage(turns=6, input_tokens=90, output_tokens=0, model="m-2"))
    assert (grown.turns, grown.input_tokens, grown.output_tokens) == (6, 100, 0)
    assert (grown.cost_usd, grown.model) == (Decimal(1), "m-2")


def test_money_spent_after_the_end_is_a_fact(store: StateStore) -> None:
    """workflows W-51, case 27."""
    executions, execution = store.workflows.executions, begun(store)
    executions.finish(execution.id, "failed")
    late = executions.update(execution.id, usage=Usage(turns=7, cost_usd=Decimal("0.5")))
    assert (late.turns, late.cost_usd, late.outcome) == (7, Decimal("0.5"), "failed")


def test_nothing_else_is_accepted_after_the_end(store: StateStore) -> None:
    """workflows W-51."""
    execution = begun(store)
    ended = store.workflows.executions.finish(execution.id, "succeeded")
    each: list[dict[str, Any]] = [{}, {"checkpoint": 1}, {"session_id": "s"}, {"session_id": "s", "usage": Usage()}]
    for given in each:
        with pytest.raises(Conflict) as caught:
            store.workflows.executions.update(execution.id, **given)
        details = (caught.value.code, caught.value.details["found"], caught.value.details["allowed"])
        assert details == ("execution_finished", "succeeded", ("running",))
    assert store.workflows.executions.get(execution.id) == ended


NO_AMOUNTS = (
    Usage(turns=-1),
    Usage(input_tokens=2**63),
    Usage(output_tokens=True),
    Usage(api_duration_ms=1.5),  # type: ignore[arg-type]
    Usage(cost_usd=Decimal("-0.01")),
    Usage(cost_usd=Decimal("NaN")),
    Usage(cost_usd=Decimal("Infinity")),
    Usage(cost_usd=Decimal("1000000.000001")),
    Usage(cost_usd="0.1"),  # type: ignore[arg-type]
    Usage(cost_usd=float("nan")),
    Usage(cost_usd=True),
    Usage(model=" "),
    Usage(model="m" * 129),
    Usage(price_table="a\0b"),
)


def test_what_cannot_be_an_amount_is_refused(store: StateStore) -> None:
    """workflows W-2, W-7, W-60."""
    execution = begun(store)
    for usage in NO_AMOUNTS:
        with pytest.raises(InvalidValue, match=r"usage\."):
            store.workflows.executions.update(execution.id, usage=usage)
    assert store.workflows.executions.get(execution.id) == execution


def test_a_float_is_the_decimal_number_that_it_shows(store: StateStore) -> None:
    """workflows W-60: to the picodollar."""
    execution = begun(store)
    updated = store.workflows.executions.update(execution.id, usage=Usage(cost_usd=0.012345678901))
    assert updated.cost_usd == Decimal("0.012345678901")


def test_a_checkpoint_has_its_limit(store: StateStore) -> None:
    """workflows W-3."""
    execution, most = begun(store), "x" * (256 * 1024 - 2)
    assert store.workflows.executions.update(execution.id, checkpoint=most).checkpoint == most
    with pytest.raises(PayloadTooLarge):
        store.workflows.executions.update(execution.id, checkpoint=most + "x")


def test_cost_is_stored_in_whole_picodollars_and_mirrored(store: StateStore, raw: Raw) -> None:
    """workflows W-60: its whole micro-dollars, and what is below one."""
    execution = begun(store)
    updated = store.workflows.executions.update(execution.id, usage=Usage(cost_usd=Decimal("1.2345675")))
    assert updated.cost_usd == Decimal("1.2345675")
    assert raw("SELECT cost_micros, cost_picos, cost_usd FROM executions") == [(1_234_567, 500_000, 1.2345675)]


@pytest.mark.parametrize("cost", ["0.0000004", "0.0000126", "0.000000000001", "0.0000375"])
def test_small_costs_add_up_exactly(store: StateStore, cost: str) -> None:
    """workflows W-60: nothing is rounded for each execution, so nothing vanishes and nothing grows."""
    executions, run = store.workflows.executions, started(store)
    for _ in range(50):
        execution = executions.start("deploy:plan", run_id=run.id)
        executions.finish(execution.id, "succeeded", usage=Usage(cost_usd=Decimal(cost)))
    [summary] = store.workflows.runs.list()
    usage = store.workflows.usage
    groups = usage.by("skill", since=run.started_at)
    found = {summary.totals.cost_usd, usage.for_run(run.id).cost_usd, usage.daily(days=1)[0].cost_usd}
    assert found | {group.cost_usd for group in groups} == {50 * Decimal(cost)}


def test_a_report_below_a_micro_dollar_more_is_more(store: StateStore) -> None:
    """workflows W-51, W-60: and a smaller one changes nothing."""
    execution, update = begun(store), store.workflows.executions.update
    for reported, stored in (("0.0000004", "0.0000004"), ("0.0000009", "0.0000009"), ("0.0000005", "0.0000009")):
        assert update(execution.id, usage=Usage(cost_usd=Decimal(reported))).cost_usd == Decimal(stored)


INPUT = Usage(input_tokens=1_000, output_tokens=50, cache_read_input_tokens=800)


def test_cache_reads_that_the_input_includes_are_counted_once(store: StateStore) -> None:
    """workflows W-145: in every total, beside reports of which the input includes none."""
    executions, run, usage = store.workflows.executions, started(store), store.workflows.usage
    for report in (INPUT, replace(INPUT, input_includes_cache_reads=True)):
        executions.finish(executions.start("deploy:plan", run_id=run.id).id, "succeeded", usage=report)
    assert {each.input_includes_cache_reads for each in executions.list(run_id=run.id).items} == {False, True}
    since = run.started_at
    for totals in (
        usage.for_run(run.id),
        usage.by("skill", since=since)[0],
        usage.daily(days=1)[0],
        usage.hourly(hours=1)[0],
        usage.stats(since=since).totals,
    ):
        assert totals.total_tokens == 1_850 + 1_050
        assert (totals.input_tokens, totals.cache_read_input_tokens) == (2_000, 1_600)


def test_what_the_input_includes_is_kept_with_the_tokens(store: StateStore) -> None:
    """workflows W-145: a report without tokens, or an end without a report, says nothing of it."""
    execution, executions = begun(store), store.workflows.executions
    executions.update(execution.id, usage=replace(INPUT, input_includes_cache_reads=True))
    assert executions.update(execution.id, usage=Usage(turns=1)).input_includes_cache_reads
    assert executions.finish(execution.id, "succeeded").input_includes_cache_reads
    assert not executions.get(begun(store).id).input_includes_cache_reads


def test_cost_adds_up_exactly(store: StateStore) -> None:
    """workflows W-60."""
    executions, run = store.workflows.executions, started(store)
    for cost in ("0.1", "0.2"):
        execution = executions.start("deploy:plan", run_id=run.id)
        executions.finish(execution.id, "succeeded", usage=Usage(cost_usd=Decimal(cost)))
    [summary] = store.workflows.runs.list()
    assert (summary.totals.cost_usd, summary.totals.executions) == (Decimal("0.3"), 2)


@pytest.mark.plain_postgres("fills tables by a statement that Citus refuses")
def test_ten_thousand_rows_of_floats_add_up_exactly(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-60: rows of another program, in one order and in the other."""
    for order in ("ASC", "DESC"):
        run = started(every_backend)
        raw(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) "
            "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, workflow_run_id, cost_usd) "
            "SELECT r.id || '-' || n.i, 'api', 't', 'a:b', r.started_at, r.id, n.i * 0.000001 + 0.1 "
            f"FROM n, workflow_runs r WHERE r.id = ? ORDER BY n.i {order}",
            run.id,
        )
    totals = {summary.totals.cost_usd for summary in every_backend.workflows.runs.list()}
    assert totals == {Decimal("1050.005")}


def test_a_report_on_a_row_with_a_float_only_grows(store: StateStore, raw: Raw) -> None:
    """workflows W-51, W-60: the row of another program has no exact cost."""
    execution = begun(store)
    raw("UPDATE executions SET cost_usd = 0.3")
    executions = store.workflows.executions
    assert executions.get(execution.id).cost_usd == Decimal("0.3")
    assert executions.update(execution.id, usage=Usage(cost_usd=Decimal("0.2"))).cost_usd == Decimal("0.3")
    assert executions.update(execution.id, usage=Usage(cost_usd=Decimal("0.4"))).cost_usd == Decimal("0.4")
    assert raw("SELECT cost_micros, cost_picos, cost_usd FROM executions") == [(400_000, 0, 0.4)]


def test_a_report_without_a_cost_leaves_a_float_that_nobody_believes(store: StateStore, raw: Raw) -> None:
    """workflows W-51: of another program."""
    execution = begun(store)
    raw("UPDATE executions SET cost_usd = 1e30")
    assert store.workflows.executions.update(execution.id, usage=Usage(turns=1)).cost_usd is None
    assert raw("SELECT turns, cost_micros, cost_picos, cost_usd FROM executions") == [(1, None, None, 1e30)]
