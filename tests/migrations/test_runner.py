from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from support.each import with_each
from support.migrations.snapshot import differences
from support.migrations.support import OLD_RUN, Place, catalogue, tables
from support.migrations.workers import Workers
from support.refusal import refused

from lastlight_state import StateStore
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import BackendBusy, BackendError, InvalidValue, SchemaMismatch
from lastlight_state.migrations import apply, current, history, migrate, scripts, upgrade

ALL = tuple(scripts.revisions())


@pytest.mark.usefixtures("with_next_revision")
def test_what_old_rows_say_is_carried_over_once_by_the_revision_that_adds_the_columns(place: Place) -> None:
    """migrations MG-69: later changes of these columns stay."""
    place.at("0001")
    raw = place.raw()
    raw.execute(OLD_RUN)
    migrate(place.backend(), ALL[1])
    assert list(raw.execute("SELECT phase_count FROM workflow_runs")) == [(1,)]
    raw.execute("UPDATE workflow_runs SET phase_count = 7")
    assert migrate(place.backend()).revisions == (*ALL[2:], "9999")
    assert list(raw.execute("SELECT phase_count FROM workflow_runs")) == [(7,)]


def test_migrating_reaches_the_head_and_a_second_time_does_nothing(place: Place) -> None:
    """migrations MG-23."""
    backend = place.backend()
    first = migrate(backend)
    assert (first.state, first.from_revision, first.to_revision, first.revisions) == ("current", None, ALL[-1], ALL)
    second = migrate(backend)
    assert (second.state, second.from_revision, second.to_revision, second.revisions) == (
        "current",
        ALL[-1],
        ALL[-1],
        (),
    )


def test_migrating_goes_as_far_as_it_was_asked(place: Place) -> None:
    """migrations MG-61: ``--to``."""
    backend = place.backend()
    assert migrate(backend, "0001").state == "behind"
    assert current(backend) == "0001"
    assert migrate(backend, "0001").revisions == ()
    assert migrate(backend).revisions == ALL[1:]


@pytest.mark.slow
def test_one_revision_at_a_time_ends_where_all_at_once_does(place: Place) -> None:
    backend = place.backend()
    for revision in ALL:
        assert migrate(backend, revision).revisions == (revision,)
    stepwise = catalogue(backend)
    elsewhere = Place("sqlite", lambda _: f"{place.url}.other") if place.name == "sqlite" else place
    other = elsewhere.backend(schema=None if place.name == "sqlite" else "other")
    migrate(other)
    assert differences(stepwise, catalogue(other)) == []
    elsewhere.close()


def test_an_unknown_revision_is_refused(place: Place) -> None:
    with pytest.raises(InvalidValue, match="unknown revision '0000'") as caught:
        migrate(place.backend(), "0000")
    assert caught.value.details["permitted"] == ("head", *ALL)


def test_the_history_tells_each_revision() -> None:
    """migrations MG-61."""
    first = history()[0]
    assert (first.revision, first.down_revision) == ("0001", None)
    assert first.summary == "The seven tables of the original program."


@pytest.mark.parametrize("start", ["nothing", "0001"])
def test_of_eight_processes_at_once_one_migrates_and_all_succeed(place: Place, start: str, workers: Workers) -> None:
    """migrations MG-25: on an empty database, and on one at 0001."""
    if start != "nothing":
        place.at(start)
    said = workers.migrate(place.url, members=8)
    assert sorted(said) == [[]] * 7 + [list(ALL[ALL.index(start) + 1 :] if start in ALL else ALL)]
    assert current(place.backend()) == ALL[-1]


@pytest.mark.parametrize("statements", [2, 60])
@pytest.mark.parametrize("start", ["nothing", "0001"])
def test_a_killed_upgrade_leaves_the_schema_as_it_was(
    place: Place, start: str, statements: int, workers: Workers
) -> None:
    """migrations MG-24: ``kill -9`` in the middle; the next run succeeds."""
    backend = place.backend() if start == "nothing" else place.at(start)
    before = catalogue(backend)
    assert workers.migrate(place.url, die_at=statements) == [None]
    assert differences(catalogue(backend), before) == []
    assert migrate(backend).state == "current"


@pytest.mark.soak
@pytest.mark.parametrize("start", ["nothing", "0001"])
def test_an_upgrade_killed_at_any_statement_leaves_the_schema_as_it_was(
    place: Place, start: str, workers: Workers
) -> None:
    """migrations MG-24: at every statement of the upgrade, one after the other."""
    backend = place.backend() if start == "nothing" else place.at(start)
    before = catalogue(backend)
    statement = 1
    while workers.migrate(place.url, die_at=statement) == [None]:
        assert differences(catalogue(backend), before) == []
        statement += 1
    assert statement > 60
    assert current(backend) == ALL[-1]


@pytest.mark.usefixtures("with_bad_revision")
@with_each("start", [None, "0001", ALL[-1]])
def test_a_revision_that_fails_half_way_leaves_the_schema_as_it_was(place: Place, start: str | None) -> None:
    """migrations MG-24: it applies or it does not, all revisions together."""
    backend = place.backend() if start is None else place.at(start)
    before = catalogue(backend)
    with pytest.raises(BackendError):
        migrate(backend)
    assert differences(catalogue(backend), before) == []
    assert current(backend) == start


def test_waiting_for_another_migration_is_bounded(place: Place) -> None:
    """migrations MG-26: ``--lock-timeout``."""
    backend, other = place.backend(), place.backend()
    with other.migration(1), pytest.raises(BackendBusy):
        migrate(backend, lock_timeout=0.1)
    assert current(backend) is None


@pytest.mark.slow
def test_waiting_for_a_table_in_use_is_bounded(postgres_place: Place) -> None:
    """migrations MG-26, Postgres: a waiting ALTER TABLE would make everybody else wait behind it."""
    backend = postgres_place.at("0001")
    reader = postgres_place.raw()
    with reader.transaction():
        reader.execute("SELECT * FROM executions")
        with pytest.raises(BackendBusy):
            migrate(backend, lock_timeout=0.1)
    assert current(backend) == "0001"
    assert migrate(backend).state == "current"


@pytest.mark.parametrize("schema", ['Odd "name"', "it's", "a.b%c", "ünï"])
def test_a_schema_may_have_an_odd_name(postgres_place: Place, schema: str) -> None:
    """migrations MG-29, Postgres."""
    backend = postgres_place.backend(schema=schema)
    assert migrate(backend).state == "current"
    assert migrate(backend).revisions == ()
    delete_is_refused(postgres_place.raw(), schema)


@pytest.mark.slow
def test_two_schemas_of_one_database_are_independent(postgres_place: Place) -> None:
    """migrations MG-29, Postgres: versions, tables and guards."""
    left, right = postgres_place.backend(schema="left"), postgres_place.backend(schema="right")
    migrate(left, "0001")
    assert migrate(right).revisions == ALL
    assert (current(left), current(postgres_place.backend())) == ("0001", None)
    migrate(left)
    raw = postgres_place.raw()
    raw.execute("BEGIN; INSERT INTO \"left\".maintenance_permits VALUES ('reset')")
    delete_is_refused(raw, "right")


def delete_is_refused(raw: Any, schema: str) -> None:
    """The guards of that schema work, for a connection with any search path."""
    tombstones = sql.SQL("{}.tombstones").format(sql.Identifier(schema))
    raw.execute(sql.SQL("INSERT INTO {} VALUES ('a', 'b', 'c', NULL, now())").format(tombstones))
    with refused():
        raw.execute(sql.SQL("DELETE FROM {}").format(tombstones))


def test_a_temporary_table_cannot_pose_as_a_permit(postgres_place: Place) -> None:
    """maintenance OP-8, Postgres: temporary tables come first in an ordinary search path."""
    postgres_place.at()
    raw = postgres_place.raw()
    raw.execute("CREATE TEMPORARY TABLE maintenance_permits (receipt_id text)")
    raw.execute("INSERT INTO maintenance_permits VALUES ('reset')")
    delete_is_refused(raw, raw.execute("SELECT current_schema()").fetchone()[0])


def test_a_service_may_migrate_on_its_own_connection(place: Place) -> None:
    """migrations MG-50: our tables with its own, our version table beside its own, in its transaction."""
    engine = create_engine(place.url)
    with engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        assert upgrade(connection).revisions == ALL
        assert upgrade(connection).revisions == ()
        transaction.commit()
    engine.dispose()
    assert {"alembic_version", VERSION_TABLE, "workflow_runs"} <= tables(place.backend())


def test_a_service_that_rolls_back_takes_ours_back_too(place: Place) -> None:
    """migrations MG-50: also where the driver begins no transaction for DDL."""
    engine = create_engine(place.url)
    with engine.connect() as connection, connection.begin() as transaction:
        upgrade(connection)
        transaction.rollback()
    engine.dispose()
    assert tables(place.backend()) == set()


@pytest.mark.usefixtures("with_bad_revision")
def test_a_service_whose_upgrade_fails_keeps_nothing_of_it(place: Place) -> None:
    """migrations MG-50."""
    engine = create_engine(place.url)
    with pytest.raises(DBAPIError), engine.begin() as connection:
        upgrade(connection)
    engine.dispose()
    assert tables(place.backend()) == set()


def test_a_service_with_tables_of_our_names_is_refused(place: Place) -> None:
    """migrations MG-51: they were made by somebody else, and nothing is known about them."""
    place.raw().execute("CREATE TABLE executions (id TEXT)")
    engine = create_engine(place.url)
    with pytest.raises(SchemaMismatch, match="no version of ours") as caught, engine.begin() as connection:
        upgrade(connection)
    engine.dispose()
    assert caught.value.differences == ("executions",)


def test_a_service_waits_for_our_own_migrations(postgres_place: Place) -> None:
    """migrations MG-51, Postgres: for as long as its own ``lock_timeout`` says."""
    engine = create_engine(postgres_place.url)
    with postgres_place.backend().migration(1), engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            upgrade(connection)
    engine.dispose()


def test_an_upgrade_to_an_older_revision_says_where_the_newer_database_is(place: Place) -> None:
    """migrations MG-61: inside the caller's own transaction, too; nothing goes back."""
    backend = place.backend()
    migrate(backend)
    with backend.migration(5) as connection:
        result = apply.apply_revisions(connection, ALL[0])
    assert (result.state, result.from_revision, result.to_revision) == ("current", ALL[-1], ALL[-1])
    assert current(backend) == ALL[-1]


def test_a_forked_child_may_migrate_while_its_parent_does(tmp_path: Path) -> None:
    """tenants TN-16: the thread that runs Alembic there is not here."""
    begun, may_end = threading.Event(), threading.Event()

    def migrating() -> None:
        with apply.environment_kept():
            begun.set()
            may_end.wait(30)

    thread = threading.Thread(target=migrating)
    thread.start()
    begun.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        StateStore.open(tmp_path / "state.db").close()
        os._exit(3)
    may_end.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
