"""Lists of executions: their order, their filters, what they cost, and rows that another program wrote."""

from __future__ import annotations

import json
import timeit
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from support.sent import recorded
from support.workflows.plans import columns_of_rows, plan_of
from support.workflows.steps import Raw, all_pages, started, together

from lastlight_state.errors import Conflict, CorruptData, InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import ExecutionOptions, ExecutionSummary, Failure, NodeRef, Trigger, Usage
from lastlight_state.workflows.executions import lists, statements as sql
from lastlight_state.workflows.words import Outcome

LARGE = ("output_text", "checkpoint", "details", "error_detail")
MANY = 3_000
LARGE_RUN = "run-large"


def fill(raw: Raw) -> None:
    """Thousands of ended executions: one second apart, a tenth of them of one run, the rest of others."""
    at = "to_timestamp(1770000000 + n.i)" if raw.name == "postgresql" else STAMP
    raw(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, finished_at, success, outcome,"
        " workflow_run_id) "
        f"SELECT 'e-' || n.i, 'webhook', 't-' || (n.i % 50), 'deploy:' || (n.i % 5), {at}, {at},"
        f" {'n.i % 7 > 0' if raw.name == 'postgresql' else 'min(n.i % 7, 1)'},"
        " CASE WHEN n.i % 7 > 0 THEN 'succeeded' ELSE 'failed' END,"
        " CASE WHEN n.i % 10 = 0 THEN ? ELSE 'run-' || (n.i % 300) END FROM n",
        MANY,
        LARGE_RUN,
    )


STAMP = "strftime('%Y-%m-%dT%H:%M:%S.000Z', 1770000000 + n.i, 'unixepoch')"


def test_the_newest_come_first_and_pages_miss_nothing(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-56, W-101."""
    run = started(store)
    ids = []
    for n in range(7):
        frozen_clock.advance(seconds=n % 2)
        ids.append(store.workflows.executions.start("deploy:a", run_id=run.id).id)
    listed = all_pages(store.workflows.executions.list, limit=2)
    assert [item.id for item in listed] == ids[::-1]
    assert [item.id for item in all_pages(store.workflows.executions.list, run_id=run.id, limit=3)] == ids[::-1]


def test_a_summary_is_the_execution_without_what_is_large(store: StateStore) -> None:
    """workflows W-56, W-104."""
    executions, run = store.workflows.executions, started(store)
    options = ExecutionOptions(details={"a": 1}, work_dir="/srv")
    execution = executions.start("deploy:a", run_id=run.id, node=NodeRef("a", 2), session_id="s", options=options)
    executions.update(execution.id, usage=Usage(turns=1, cost_usd=None, model="m"), checkpoint=[1])
    execution = executions.finish(execution.id, "failed", failure=Failure("x" * 501, {"b": 1}, "max_turns"))
    [summary] = executions.list()
    whole = execution.model_dump()
    assert type(summary) is ExecutionSummary
    assert summary.model_dump() == {name: whole[name] for name in ExecutionSummary.model_fields} | {"error": "x" * 500}
    assert not set(LARGE) & set(ExecutionSummary.model_fields)


def test_filters_narrow_a_list(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-56."""
    executions, run = store.workflows.executions, started(store)
    other = started(store, trigger=Trigger("t-2", type="api"))
    plan = executions.start("deploy:plan", run_id=run.id)
    at = frozen_clock.advance(seconds=1)
    fix = executions.start("deploy:fix", run_id=run.id)
    theirs = executions.start("deploy:plan", run_id=other.id)

    def ids(**given: Any) -> set[str]:
        return {item.id for item in executions.list(**given)}

    assert ids(run_id=run.id) == {plan.id, fix.id}
    assert ids(trigger_id="t-2") == {theirs.id}
    assert ids(skill="deploy:plan") == {plan.id, theirs.id}
    assert ids(since=at) == {fix.id, theirs.id}
    assert ids(since=at + timedelta(milliseconds=1)) == set()
    assert ids(run_id=run.id, skill="deploy:plan", since=at) == set()


def test_outcomes_filter_what_they_say(store: StateStore) -> None:
    """workflows W-20, W-56."""
    executions, run = store.workflows.executions, started(store)
    flying = executions.start("deploy:a", run_id=run.id)
    done = executions.finish(executions.start("deploy:a", run_id=run.id).id, "succeeded")
    skipped = executions.skip("deploy:a", run_id=run.id, reason="off")

    def ids(*outcomes: str) -> list[str]:
        return [item.id for item in all_pages(executions.list, outcomes=outcomes, limit=1)]

    assert ids("running") == [flying.id]
    assert ids("succeeded") == [done.id]
    assert ids("skipped", "running", "skipped") == [skipped.id, flying.id]
    assert ids("failed", "deferred", "cancelled", "interrupted") == []
    assert ids() == []
    wrong: list[Any] = [["done"], ["running", ""], "running"]
    for bad in wrong:
        with pytest.raises(InvalidValue, match="outcomes"):
            executions.list(outcomes=bad)


def test_attempts_of_a_node_come_in_their_order(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-56: an execution that another program counted as no attempt is none."""
    executions, run = store.workflows.executions, started(store)
    for _ in range(4):
        frozen_clock.advance(seconds=-1)
        executions.start("deploy:a", run_id=run.id, node=NodeRef("a", 1))
    executions.start("deploy:a", run_id=run.id, node=NodeRef("a"))
    raw("UPDATE executions SET node_id = 'a', iteration = 1 WHERE id = ?", raw.execution(run.id))
    attempts = all_pages(executions.list, run_id=run.id, node=NodeRef("a", 1), limit=3)
    assert [(item.iteration, item.attempt) for item in attempts] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    with pytest.raises(InvalidValue, match="node: must not be given without a run_id"):
        executions.list(node=NodeRef("a"))


def test_a_token_belongs_to_its_list_and_filter(store: StateStore) -> None:
    """workflows W-20."""
    executions, run = store.workflows.executions, started(store)
    for _ in range(3):
        executions.start("deploy:a", run_id=run.id, node=NodeRef("a"))
    token = executions.list(run_id=run.id, outcomes=("running", "failed"), limit=1).next_page_token
    assert len(executions.list(run_id=run.id, outcomes=("failed", "running"), page_token=token)) == 2
    strangers: list[dict[str, Any]] = [{}, {"run_id": run.id}, {"run_id": run.id, "outcomes": ("running",)}]
    for given in (*strangers, {"run_id": run.id, "node": NodeRef("a")}):
        with pytest.raises(InvalidValue, match="page_token"):
            executions.list(page_token=token, **given)
    for limit in (0, 501, True):
        with pytest.raises(InvalidValue, match="limit"):
            executions.list(limit=limit)


def test_pages_stay_whole_while_executions_begin(every_backend: StateStore) -> None:
    """workflows W-101."""
    executions, run = every_backend.workflows.executions, started(every_backend)
    ids = [executions.start("deploy:a", run_id=run.id).id for _ in range(40)]

    def begin() -> None:
        for _ in range(20):
            executions.start("deploy:a", run_id=run.id)

    def read() -> list[str]:
        return [item.id for item in all_pages(executions.list, run_id=run.id, limit=3)]

    _, *readings = together([begin, read, read, read])
    for reading in readings:
        assert isinstance(reading, list)
        assert [key for key in reading if key in set(ids)] == ids[::-1]
        assert len(set(reading)) == len(reading)


def test_the_newest_execution_of_a_session_is_found(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-56."""
    executions, run = store.workflows.executions, started(store)
    executions.start("deploy:a", run_id=run.id, session_id="s-1")
    frozen_clock.advance(seconds=1)
    newer = executions.start("deploy:a", run_id=run.id, session_id="s-1")
    executions.start("deploy:a", run_id=run.id)
    assert executions.find_by_session("s-1") == newer
    assert executions.find_by_session("s") is None


LEGACY: dict[str, tuple[Mapping[str, Any], str]] = {
    "in flight": ({}, "running"),
    "success": ({"finished_at": "@", "success": True}, "succeeded"),
    "success without an end": ({"success": True}, "succeeded"),
    "an end without success": ({"finished_at": "@"}, "failed"),
    "an end without success, for a reason": ({"finished_at": "@", "stop_reason": "skipped"}, "failed"),
    "failure": ({"finished_at": "@", "success": False, "stop_reason": "max_turns"}, "failed"),
    "failure without a reason": ({"success": False}, "failed"),
    "skipped": ({"finished_at": "@", "success": False, "stop_reason": "skipped"}, "skipped"),
    "deferred": ({"finished_at": "@", "success": False, "stop_reason": "error_quota"}, "deferred"),
    "a success that was once skipped": ({"success": True, "stop_reason": "skipped"}, "succeeded"),
    "ended by a program that knows no outcomes": ({"success": True, "outcome": "running"}, "succeeded"),
    "a word from a newer version": ({"finished_at": "@", "success": False, "outcome": "evaporated"}, "evaporated"),
}


def plant(raw: Raw, execution_id: str, facts: Mapping[str, Any], run_id: str | None = None) -> None:
    """A row as another program writes it."""
    row: dict[str, Any] = {
        "id": execution_id,
        "trigger_type": "webhook",
        "trigger_id": "t",
        "skill": "a:b",
        "started_at": "@",
        **facts,
    }
    row["workflow_run_id"] = run_id
    at = "2026-01-02T03:04:05.678Z"
    values = [at if value == "@" else value for value in row.values()]
    raw(f"INSERT INTO executions ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *values)


def test_the_outcome_of_a_row_of_another_program_is_derived(store: StateStore, raw: Raw) -> None:
    """workflows W-1, W-56: alike in records and in filters."""
    executions = store.workflows.executions
    for name, (facts, outcome) in LEGACY.items():
        plant(raw, name, facts)
        assert executions.get(name).outcome == outcome
    listed = {item.id: item.outcome for item in executions.list()}
    assert listed == {name: outcome for name, (_, outcome) in LEGACY.items()}
    for outcome in get_args(Outcome):
        wanted = {name for name, (_, known) in LEGACY.items() if known == outcome}
        assert {item.id for item in executions.list(outcomes=[outcome])} == wanted
        assert {item.id for item in executions.list(outcomes=[outcome, "cancelled"])} == wanted


def test_only_a_row_with_neither_end_nor_success_is_in_flight(store: StateStore, raw: Raw) -> None:
    """workflows W-52, W-56."""
    run = started(store)
    for name, (facts, _) in LEGACY.items():
        plant(raw, name, facts, run.id)
    raw("UPDATE executions SET turns = 1")
    executions, ended = store.workflows.executions, LEGACY.keys() - {"in flight"}
    assert {item.id for item in executions.list(lost_log=True)} == ended
    for name in ended:
        with pytest.raises(Conflict) as caught:
            executions.update(name, checkpoint={"step": 1})
        assert (caught.value.code, caught.value.details["found"]) == ("execution_finished", LEGACY[name][1])
    assert executions.interrupt(run.id, reason="taken over") == 1
    assert executions.get("in flight").outcome == "interrupted"
    assert executions.phase_state("a:b", run_id=run.id) == "done"


def test_a_qualified_repository_of_another_program_is_split(store: StateStore, raw: Raw) -> None:
    """workflows W-6."""
    plant(raw, "e-1", {"repo": "acme/widget"})
    found, [listed] = store.workflows.executions.get("e-1"), store.workflows.executions.list()
    assert {(item.owner, item.repo) for item in (found, listed)} == {("acme", "widget")}


def test_broken_json_breaks_no_list(database: Database, every_backend: StateStore, raw: Raw) -> None:
    """workflows W-21: JSON that does not parse can only stand in a SQLite file."""
    plant(raw, "e-1", {})
    if database.name == "sqlite":
        raw("UPDATE executions SET checkpoint = '{oops'")
        with pytest.raises(CorruptData) as caught:
            every_backend.workflows.executions.get("e-1")
        assert (caught.value.table, caught.value.key, caught.value.column) == ("executions", "e-1", "checkpoint")
    assert [item.id for item in every_backend.workflows.executions.list()] == ["e-1"]


def test_no_statement_of_a_list_names_what_is_large(database: Database) -> None:
    """workflows W-100, W-104."""
    with recorded(database) as (store, sent):
        run = started(store)
        executions = store.workflows.executions
        executions.start("deploy:a", run_id=run.id, node=NodeRef("a"))
        sent.clear()
        executions.list()
        executions.list(run_id=run.id, skill="deploy:a", outcomes=("running", "failed"), since=run.started_at)
        executions.list(trigger_id=run.trigger_id, outcomes=("running",))
        executions.list(run_id=run.id, node=NodeRef("a"))
        assert len(sent) == 4
        assert not [text for text in sent for name in LARGE if name in text]


# Within what `fill` makes: of times outside, Postgres guesses a few rows, and sorting them costs as much as an index.
SINCE, PLACE = (datetime(2026, 2, 2, *time, tzinfo=UTC) for time in ((2, 50), (3, 20)))

# What is asked, and the index that answers on SQLite and on Postgres.
INDEXES: dict[str, tuple[dict[str, Any], str, str]] = {
    "all": ({}, "ix_executions_usage", "ix_executions_started"),
    "since": ({"since": SINCE}, "ix_executions_usage", "ix_executions_started"),
    "run": ({"run_id": LARGE_RUN}, "idx_executions_workflow_run", "idx_executions_workflow_run"),
    "trigger": ({"trigger_id": "t-0"}, "idx_executions_trigger", "idx_executions_trigger"),
    # Of a frequent skill Postgres may walk the newest: idx_executions_skill or ix_executions_started.
    "skill": ({"skill": "deploy:0"}, "idx_executions_skill", "executions_s"),
    "lost log": ({"lost_log": {}}, "ix_executions_lost_log", "ix_executions_lost_log"),
    "in flight": ({"in_flight": {}}, "ix_executions_signs", "ix_executions_in_flight"),
    "node": (
        {"run_id": LARGE_RUN, "node": {"node_id": "a", "iteration": 0}},
        "uq_executions_attempt",
        "uq_executions_attempt",
    ),
}


def test_every_list_reads_its_index(database: Database, every_backend: StateStore, raw: Raw) -> None:
    """workflows W-61, W-101, W-170, W-171: at thousands of rows, without a scan; what is sorted is a small part."""
    fill(raw)
    if database.name == "sqlite":
        check_plans(database, every_backend)  # a file that was never analysed
    raw("ANALYZE executions")
    check_plans(database, every_backend)


def check_plans(database: Database, store: StateStore) -> None:
    for name, (given, on_sqlite, on_postgres) in INDEXES.items():
        listing = lists.listing_of({"node": None, **given})
        values = {**given, **given.get("node", {}), "after_0": 1 if name == "node" else PLACE, "after_1": "e-1"}
        for paged in (False, True):
            plan = plan_of(database, store, listing.statement(given, paged=paged), values)
            assert (on_sqlite if database.name == "sqlite" else on_postgres) in plan.text, name
            assert not plan.scans_the_table, name
            assert not plan.sorts_the_table or name in ("run", "trigger", "skill", "in flight")


def test_a_page_takes_nothing_from_behind_the_text(database: Database, every_backend: StateStore, raw: Raw) -> None:
    """workflows W-104: on SQLite a column behind ``output_text`` costs a walk through all of it.

    What stands behind it in the row comes from the index; Postgres keeps large values beside the row.
    """
    fill(raw)
    columns = [row[0] for row in raw(COLUMNS[database.name])]
    behind = set(columns[columns.index("output_text") :])
    if database.name == "sqlite":
        for given in ({}, {"run_id": LARGE_RUN}):
            statement = lists.listing_of({"node": None, **given}).statement(given, paged=False)
            read = columns_of_rows(database, every_backend, statement, dict(given))
            assert read
            assert not read & behind
    else:
        assert {"text", "jsonb"} == {row[1] for row in raw(COLUMNS[database.name]) if row[0] in LARGE}


COLUMNS = {
    "sqlite": "SELECT name FROM pragma_table_info('executions')",
    "postgresql": "SELECT column_name, data_type FROM information_schema.columns"
    " WHERE table_name = 'executions' ORDER BY ordinal_position",
}


@pytest.mark.soak
def test_a_page_beside_large_texts_costs_what_it_costs_beside_none(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-104."""
    executions, run = every_backend.workflows.executions, started(every_backend)
    for _ in range(300):
        executions.start("deploy:a", run_id=run.id)

    def fastest(**given: Any) -> float:
        return min(timeit.repeat(lambda: executions.list(**given), number=5, repeat=40))

    before = fastest(), fastest(run_id=run.id)
    raw(f"UPDATE executions SET output_text = {MEGABYTE[raw.name]}")
    if raw.name == "postgresql":
        raw("VACUUM executions")  # what the update left behind would be walked over, whatever its size
    after = fastest(), fastest(run_id=run.id)
    assert after[0] <= before[0] * 1.5
    assert after[1] <= before[1] * 1.5


MEGABYTE = {"sqlite": "hex(randomblob(524288))", "postgresql": "repeat(md5(id), 32768)"}


def test_the_state_of_a_phase_is_answered_from_an_index(
    database: Database, every_backend: StateStore, raw: Raw
) -> None:
    """workflows W-102."""
    fill(raw)
    raw("ANALYZE executions")
    values = {"skill": "deploy:0", "run_id": LARGE_RUN, "trigger_id": "t-0"}
    for statement in (sql.STATE_IN_RUN, sql.STATE_OF_TRIGGER, sql.FIND_OUTPUT, sql.FIND_SESSION):
        given = {**values, "execution_id": "e-1", "session_id": "s-1"}
        assert not plan_of(database, every_backend, statement, given, in_order=True).scans_the_table


def test_a_list_costs_one_statement(database: Database) -> None:
    """workflows W-101."""
    with recorded(database) as (store, sent):
        run = started(store)
        for _ in range(5):
            store.workflows.executions.start("deploy:a", run_id=run.id)
        sent.clear()
        store.workflows.executions.list(run_id=run.id, limit=2)
        store.workflows.executions.phase_state("deploy:a", run_id=run.id)
        store.workflows.executions.find_output("e-1")
        assert len(sent) == 3


def test_summaries_go_to_json_and_back(store: StateStore) -> None:
    """workflows W-56."""
    store.workflows.executions.start("chat", trigger=Trigger("thread-1"))
    [summary] = store.workflows.executions.list()
    assert ExecutionSummary.model_validate(json.loads(summary.model_dump_json())) == summary
