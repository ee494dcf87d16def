"""Databases of the original program are taken over."""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import create_engine
from support.migrations.eras import CHAT, ERAS, of_era
from support.migrations.originals import LATER, ROWS, SEED, WITHOUT_INDEX, dump, original
from support.migrations.populate import contents, layout
from support.migrations.support import Place, tables, with_connection
from support.migrations.workers import Workers

from lastlight_state import NotMigrated, StateStore
from lastlight_state.errors import BackendError, Conflict, SchemaMismatch
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import Adoption, check, current, migrate, scripts, upgrade, verify
from lastlight_state.migrations.state import SEED_TABLES

RUN = "4f6c9a1e-0b7d-4c57-9b5e-1a2f3c4d5e6f"
LATER_REVISIONS = scripts.revisions()[1:]


@pytest.mark.slow
@pytest.mark.parametrize("tables_of", [SEED, LATER], ids=["first", "later"])
def test_the_first_open_takes_it_over_and_the_rows_read_back(sqlite_place: Place, tables_of: str) -> None:
    """migrations MG-40: with the tables of the document, and as later versions of the program left them."""
    original(sqlite_place, tables_of, ROWS)
    with StateStore.open(sqlite_place.url) as store:
        run = store.workflows.runs.get(RUN)
        assert (run.status, run.owner, run.repo, run.restart_count) == ("paused", "acme", "weather", 1)
        assert run.context["title"] == "Alerts arrive twice"
        assert run.started_at.isoformat() == "2026-06-30T09:00:00+00:00"
        output = run.scratch["socratic"]["lastOutputExecutionId"]
        assert store.workflows.executions.find_output(output) == "The alert is sent by both workers."
        assert store.workflows.executions.get(output).cost_usd == Decimal("0.1325")
        assert [gate.status for gate in store.workflows.approvals.list_for_run(RUN).items] == ["approved", "pending"]
        assert not store.workflows.overrides.is_enabled("release")
        said = store.messaging.messages.history("chat-now")
        assert [message.content for message in said] == ["Why do alerts arrive twice?", "Both workers send them. ✓"]


@pytest.mark.parametrize("tables_of", [SEED, LATER], ids=["first", "later"])
def test_what_was_taken_over_can_be_worked_on(sqlite_place: Place, tables_of: str) -> None:
    """migrations MG-40."""
    original(sqlite_place, tables_of, ROWS)
    with StateStore.open(sqlite_place.url) as store:
        answered = store.workflows.approvals.answer("gate-2", "replied", by="ana", response="merge it")
        assert answered.run.status == "running"
        (open_execution,) = store.workflows.executions.list(run_id=RUN, outcomes=["running"]).items
        store.workflows.executions.finish(open_execution.id, "succeeded")
        assert store.workflows.runs.finish(RUN, "succeeded").status == "succeeded"
        appended = store.messaging.messages.append("chat-now", role="user", content="thanks")
        assert (appended.message.id, store.messaging.sessions.get("chat-now").message_count) == (3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("tables_of", [SEED, LATER], ids=["first", "later"])
def test_no_row_and_no_column_is_lost(sqlite_place: Place, tables_of: str) -> None:
    """migrations MG-41: also what this library knows nothing about, and another program's ``alembic_version``."""
    original(sqlite_place, tables_of, ROWS)
    backend = sqlite_place.backend()
    columns = with_connection(backend, layout)
    before = with_connection(backend, lambda connection: contents(connection, columns))
    assert migrate(backend).adopted
    assert with_connection(backend, lambda connection: contents(connection, columns)) == before


@pytest.mark.slow
def test_it_says_what_it_did_and_a_second_time_does_nothing(sqlite_place: Place) -> None:
    """migrations MG-40."""
    original(sqlite_place, SEED, ROWS)
    backend = sqlite_place.backend()
    first = migrate(backend)
    assert (first.adopted, first.from_revision, first.revisions) == (True, None, LATER_REVISIONS)
    second = migrate(backend)
    assert (second.adopted, second.revisions, second.to_revision) == (False, (), scripts.head())


def test_indexes_that_older_versions_did_not_make_are_made(sqlite_place: Place) -> None:
    """migrations MG-42: the partial unique index is there afterwards."""
    raw = original(sqlite_place, WITHOUT_INDEX.replace("CREATE INDEX idx_executions_skill", "-- "), ROWS)
    migrate(sqlite_place.backend(), "0001")
    index = "SELECT partial, \"unique\" FROM pragma_index_list('messaging_sessions') WHERE name LIKE '%_unique_active'"
    assert raw.execute(index).fetchall() == [(1, 1)]
    assert raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'idx_executions_skill'").fetchone() == (1,)


def test_it_goes_as_far_as_it_was_asked(sqlite_place: Place) -> None:
    """migrations MG-47: ``--to``."""
    original(sqlite_place, SEED, ROWS)
    backend = sqlite_place.backend()
    result = migrate(backend, "0001")
    assert (result.state, result.adopted, result.revisions) == ("behind", True, ())
    assert tables(backend) == {*SEED_TABLES, "lastlight_state_version"}
    assert migrate(backend).revisions == LATER_REVISIONS


def test_foreign_keys_are_kept_afterwards(sqlite_place: Place) -> None:
    """messaging M-7: they are off only while a table is rebuilt."""
    original(sqlite_place, SEED, ROWS)
    backend = sqlite_place.backend()
    migrate(backend)
    values = "('no', 'user', 'x', '2026-06-30T09:12:41.007Z')"
    with pytest.raises(Conflict) as caught, backend.migration(1) as connection:
        connection.connection.dbapi_connection.execute(  # type: ignore[union-attr]
            f"INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES {values}"
        )
    assert caught.value.code == "foreign_key"


@pytest.mark.slow
def test_of_eight_processes_one_takes_it_over_and_all_succeed(sqlite_place: Place, workers: Workers) -> None:
    """migrations MG-25."""
    original(sqlite_place, SEED, ROWS)
    said = workers.migrate(sqlite_place.url, members=8)
    assert sorted(said) == [[]] * 7 + [list(LATER_REVISIONS)]


@pytest.mark.slow
@pytest.mark.parametrize("statements", [2, 30, 90])
def test_a_process_killed_meanwhile_leaves_the_file_as_it_was(
    sqlite_place: Place, workers: Workers, statements: int
) -> None:
    """migrations MG-44: all of it is one transaction."""
    raw = original(sqlite_place, WITHOUT_INDEX, ROWS)
    before = dump(raw)
    assert workers.migrate(sqlite_place.url, die_at=statements) == [None]
    assert dump(raw) == before
    assert migrate(sqlite_place.backend()).adopted


@pytest.mark.usefixtures("with_bad_revision")
def test_a_later_revision_that_fails_takes_the_adoption_back(sqlite_place: Place) -> None:
    """migrations MG-44."""
    raw = original(sqlite_place, WITHOUT_INDEX, ROWS)
    before = dump(raw)
    with pytest.raises(BackendError):
        migrate(sqlite_place.backend())
    assert dump(raw) == before


def test_opening_without_migrating_says_the_command_and_changes_nothing(sqlite_place: Place) -> None:
    """migrations MG-46."""
    raw = original(sqlite_place, SEED, ROWS)
    before = dump(raw)
    with pytest.raises(NotMigrated, match="run: lastlight-state migrate --url") as caught:
        StateStore.open(sqlite_place.url, migrate=False)
    assert caught.value.found is None
    assert dump(raw) == before


def test_the_plan_says_how_it_would_be_taken_over_and_writes_nothing(sqlite_place: Place) -> None:
    """migrations MG-46, maintenance OP-2."""
    raw = original(sqlite_place, WITHOUT_INDEX, ROWS)
    before = dump(raw)
    plan = check(sqlite_place.backend(read_only=True))
    assert plan.adoption
    assert (plan.adoption.rewrites, plan.adoption.remarks) == ((), ())
    assert plan.adoption.indexes == ("idx_msg_sessions_unique_active",)
    assert tuple(planned.revision for planned in plan.revisions) == LATER_REVISIONS
    assert dump(raw) == before


ODD = (
    "UPDATE executions SET turns = 'many' WHERE turns = 7;"
    "UPDATE workflow_runs SET scratch = '{' WHERE scratch IS NULL;"
    "INSERT INTO workflow_approvals (workflow_run_id, gate, summary, created_at)"
    " VALUES ('r', 'g', 's', '2026-06-30T09:12:41.007Z');"
    "INSERT INTO messaging_messages (session_id, role, content, timestamp)"
    " VALUES ('gone', 'user', 'x', '2026-06-30T09:12:41.007Z');"
)
REMARKS = (
    "1 values of workflow_runs.scratch are no JSON, such as '{'; lists mark their rows as damaged",
    "1 values of executions.turns are no whole number, such as 'many'; lists mark their rows as damaged",
    "1 rows of workflow_approvals have no id",
    "1 rows of messaging_messages refer to no row of messaging_sessions",
)


@pytest.mark.slow
def test_what_is_odd_about_rows_is_said_and_left_as_it_is(
    sqlite_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """migrations MG-41: numbers and JSON that cannot be read, rows without an id or an owner."""
    raw = original(sqlite_place, SEED, ROWS, "PRAGMA foreign_keys = OFF;" + ODD)
    values = "SELECT scratch FROM workflow_runs UNION ALL SELECT turns FROM executions"
    before = raw.execute(values).fetchall()
    plan = check(sqlite_place.backend())
    assert plan.adoption
    assert plan.adoption.remarks == REMARKS
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        assert migrate(sqlite_place.backend()).adopted
    assert [record.getMessage() for record in caplog.records] == [f"adopted as it is: {line}" for line in REMARKS]
    assert raw.execute(values).fetchall() == before


@pytest.mark.slow
def test_on_postgres_tables_of_other_types_are_somebody_elses(postgres_place: Place) -> None:
    """migrations MG-45: every contradiction is named, and nothing is changed."""
    raw = postgres_place.raw()
    raw.execute("CREATE TABLE executions (id uuid PRIMARY KEY, skill varchar(20) NOT NULL, started_at timestamptz)")
    backend = postgres_place.backend()
    plan = check(backend)
    assert (plan.state.state, plan.adoption) == ("unversioned", None)
    assert "column executions.id is 'uuid NOT NULL', expected 'text COLLATE C NOT NULL'" in plan.differences
    assert "column executions.trigger_id is missing, expected 'text COLLATE C NOT NULL'" in plan.differences
    for ask in (verify, migrate):
        with pytest.raises(SchemaMismatch) as caught:
            ask(backend)
        assert caught.value.differences == plan.differences
    assert tables(backend) == {"executions"}


@pytest.mark.slow
def test_a_chat_key_that_was_unique_for_ever_is_so_no_longer(place: Place) -> None:
    """migrations MG-42, messaging M-7."""
    of_era(place, next(era for era in ERAS if "v0.1" in era.stem))
    assert [rewrite.table for rewrite in _plan(place).rewrites] == ["messaging_sessions"]
    with StateStore.open(place.url, migrate=True) as store:
        key = ConversationKey("slack", "C07", "U1", "T1")
        assert store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30)).replaced == CHAT


def test_the_plan_names_what_would_be_added(place: Place) -> None:
    """migrations MG-46: tables, columns and indexes that the version of the program did not make."""
    of_era(place, next(era for era in ERAS if "v0.1" in era.stem))
    adoption = _plan(place)
    assert adoption.tables == ("cron_overrides", "workflow_overrides")
    assert adoption.columns == ("executions.output_text", "workflow_runs.restart_count")
    assert "idx_workflow_runs_started_at" in adoption.indexes


def _plan(place: Place) -> Adoption:
    adoption = check(place.backend()).adoption
    assert adoption
    return adoption


def test_a_host_application_is_told_to_migrate_first(sqlite_place: Place) -> None:
    """migrations MG-45: a table cannot be rebuilt in somebody else's transaction."""
    original(sqlite_place, SEED, ROWS)
    engine = create_engine(sqlite_place.url)
    with pytest.raises(SchemaMismatch, match="`lastlight-state migrate` takes them over"), engine.begin() as connection:
        upgrade(connection)
    engine.dispose()
    assert current(sqlite_place.backend()) is None


@pytest.mark.slow
def test_a_program_that_is_writing_is_waited_for(sqlite_place: Place) -> None:
    """migrations MG-44: nothing of what it writes is lost."""
    raw: Any = original(sqlite_place, SEED, ROWS)
    raw.execute("BEGIN IMMEDIATE")
    raw.execute("UPDATE workflow_overrides SET enabled = 1")
    with pytest.raises(BackendError):
        migrate(sqlite_place.backend(), lock_timeout=0.05)
    raw.execute("COMMIT")
    assert migrate(sqlite_place.backend()).adopted
    assert raw.execute("SELECT enabled FROM workflow_overrides").fetchall() == [(1,)]
