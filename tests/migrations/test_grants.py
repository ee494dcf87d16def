"""``grants``: a role with exactly these rights can open and work, and can change no schema."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.engine import make_url
from support.each import with_each
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite
from lastlight_state.conversations import NewBranch
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import BackendError, BackendUnavailable, InvalidValue, NotMigrated, NotSupported
from lastlight_state.migrations import grants, migrate
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.offline import rights
from lastlight_state.testing import FrozenClock
from lastlight_state.testing.contracts import (
    ApprovalsContract,
    ClaimsContract,
    ExecutionsContract,
    GraphsContract,
    HumanRequestsContract,
    MessagingContract,
    QueueContract,
    RunsContract,
    SchedulesContract,
)
from lastlight_state.testing.postgres import ThrowawayPostgres, connect

SCHEMA = 'Agents "own"'
QUOTED = '"Agents ""own"""'
HARM = (
    "CREATE TABLE {}.mine (n int)",
    "CREATE INDEX ON {}.executions (skill)",
    "ALTER TABLE {}.executions ADD COLUMN mine text",
    "DROP TABLE {}.cron_overrides",
    "DROP TRIGGER executions_no_delete ON {}.executions",
    "TRUNCATE {}.run_transitions",
    "DELETE FROM {}.executions",
    "UPDATE {}.messaging_messages SET content = ''",
    "INSERT INTO {}.maintenance_permits VALUES ('reset')",
    "UPDATE {}.lastlight_state_version SET version_num = '0001'",
    "INSERT INTO {}.lastlight_meta VALUES ('min_reader', '9999')",
    "CREATE SCHEMA mine",
)


@pytest.fixture(scope="module")
def service_url(postgres_server: ThrowawayPostgres) -> Iterator[str]:
    """A migrated database that is closed to everybody, as a role sees it that has the rights and no others."""
    place = Place("postgresql", lambda _: postgres_server.create_database())
    backend = place.backend(schema=SCHEMA)
    migrate(backend)
    owner = place.raw()
    role, password = f'Service"{uuid4().hex[:8]}', uuid4().hex
    quoted = role.replace('"', '""')
    owner.execute(f'REVOKE ALL ON DATABASE "{make_url(place.url).database}" FROM PUBLIC')
    owner.execute(f"CREATE ROLE \"{quoted}\" LOGIN PASSWORD '{password}'")
    for statement in grants(backend, role):
        owner.execute(statement)
    yield make_url(place.url).set(username=role, password=password).render_as_string(hide_password=False)
    owner.execute(f'DROP OWNED BY "{quoted}"')
    owner.execute(f'DROP ROLE "{quoted}"')
    place.close()
    postgres_server.drop_database(place.url)


@pytest.fixture
def owner(service_url: str, postgres_server: ThrowawayPostgres) -> Iterator[Place]:
    """The same database, as its owner sees it."""
    own = make_url(postgres_server.url).set(database=make_url(service_url).database)
    place = Place("postgresql", lambda _: own.render_as_string(hide_password=False))
    yield place
    place.close()


@pytest.fixture
def store(service_url: str, frozen_clock: FrozenClock) -> Iterator[StateStore]:
    """A store as the service opens it."""
    with StateStore.open(service_url, schema=SCHEMA, clock=frozen_clock) as opened:
        yield opened


def test_a_role_that_cannot_put_back_what_is_lost_says_who_can(service_url: str, owner: Place) -> None:
    """migrations MG-73, MG-30: with the statement, and the command for that database; nothing else is changed."""
    owner.raw().execute(f"DROP INDEX {QUOTED}.ix_scores_run")
    with pytest.raises(BackendUnavailable, match="as the owner of the tables run lastlight-state migrate") as caught:
        StateStore.open(service_url, schema=SCHEMA, migrate=True)
    assert getattr(caught.value, "reason", None) == "permission"
    assert "or this statement: CREATE INDEX ix_scores_run ON scores" in str(caught.value)
    StateStore.open(service_url, schema=SCHEMA, migrate=False).close()  # no invariant stands on it
    assert migrate(owner.backend(schema=SCHEMA)).mended == ("index scores.ix_scores_run",)
    StateStore.open(service_url, schema=SCHEMA, migrate=True).close()


class TestRuns(RunsContract):
    """migrations MG-30: whatever a service does with runs."""


class TestExecutions(ExecutionsContract):
    """migrations MG-30: whatever a service does with executions."""


class TestApprovals(ApprovalsContract):
    """migrations MG-30: whatever a service does with gates."""


class TestMessaging(MessagingContract):
    """migrations MG-30: whatever a service does with chats."""


class TestClaims(ClaimsContract):
    """migrations MG-30: whatever a service does with claims."""


class TestQueue(QueueContract):
    """migrations MG-30: whatever a service does with the queue and waits."""


class TestGraphs(GraphsContract):
    """migrations MG-30: whatever a service does with nodes and loops."""


class TestHumanRequests(HumanRequestsContract):
    """migrations MG-30: whatever a service does with requests to people."""


class TestSchedules(SchedulesContract):
    """migrations MG-30: whatever a service does with crons."""


def test_switches_are_the_only_rows_that_it_deletes(store: StateStore) -> None:
    """workflows W-117: an override is absent or present."""
    store.workflows.overrides.put("release", enabled=False)
    store.workflows.overrides.clear("release")
    assert store.workflows.overrides.is_enabled("release")


def test_it_deletes_no_session_of_conversations(store: StateStore) -> None:
    """conversations CV-47: the verb needs the rights of maintenance, and leaves all as it was."""
    talks = store.conversations
    session = talks.sessions.create()
    talks.branches.create(session.id, NewBranch("branch"))
    with pytest.raises(BackendError, match="lacks a right"):
        talks.branches.delete("branch")
    with pytest.raises(BackendUnavailable, match="lacks a right") as refused:
        talks.sessions.delete(session.id)
    assert refused.value.details["reason"] == "permission"
    assert talks.sessions.get(session.id).branch_count == 1


def test_it_deletes_states_and_threads(store: StateStore) -> None:
    """migrations MG-30: which no guard protects."""
    store.states.put("k", 1)
    content = Content("text", b"x")
    store.checkpoints.put("t", NewCheckpoint("c", content, {"v": "1"}, {"v": content}))
    assert (store.states.remove("k"), store.checkpoints.delete("t")) == (True, 1)


def test_it_removes_checkpoints_and_the_values_that_nobody_needs(store: StateStore) -> None:
    """migrations MG-30, checkpoints CK-51: `delete_runs` and `keep_latest`, in a schema of its own."""
    c = store.checkpoints
    for number in range(1, 6):
        content = Content("text", f"{'x' * 99}{number}".encode())
        parent = f"c{number - 1}" if number > 1 else None
        c.put("u", NewCheckpoint(f"c{number}", content, {"v": f"{number}"}, {"v": content}, "", parent, f"r{number}"))
        c.put_writes("u", f"c{number}", "task", [NewWrite(0, "v", content)])
    assert (c.delete_runs(["r1"]), c.keep_latest("u", keep=2, from_ancestors=["other"])) == (1, 0)
    assert c.keep_latest("u", keep=2, from_ancestors=["v"]) == 2
    assert [one.values["v"].data[-1:] for one in c.history("u")] == [b"5", b"4"]
    assert [len(one.writes) for one in c.history("u")] == [1, 1]


def test_it_can_look_at_everything(store: StateStore) -> None:
    """maintenance OP-73."""
    assert {table.name for table in store.maintenance.stats.collect().tables} >= METADATA.tables.keys()


@with_each("statement", HARM)
def test_it_can_change_no_schema_and_no_history(service_url: str, statement: str) -> None:
    """migrations MG-30."""
    quoted = SCHEMA.replace('"', '""')
    with connect(service_url) as service, pytest.raises(psycopg.errors.InsufficientPrivilege):
        service.execute(statement.format(f'"{quoted}"'))


def test_the_rights_follow_from_the_guards() -> None:
    """migrations MG-30."""
    given = rights()
    assert given.keys() == {*METADATA.tables, VERSION_TABLE}
    assert given["workflow_runs"] == ("SELECT", "INSERT", "UPDATE")
    assert given["run_transitions"] == given["messaging_messages"] == ("SELECT", "INSERT")
    assert given["workflow_overrides"] == ("SELECT", "INSERT", "UPDATE", "DELETE")
    assert given["maintenance_permits"] == given["lastlight_meta"] == given[VERSION_TABLE] == ("SELECT",)


def test_there_are_no_rights_to_tables_that_are_not_there_yet(postgres_place: Place) -> None:
    with pytest.raises(NotMigrated):
        grants(postgres_place.at("0001"), "service")


def test_a_file_has_no_roles(sqlite_place: Place) -> None:
    with pytest.raises(NotSupported, match="no roles"):
        grants(sqlite_place.backend(), "service")


@pytest.mark.parametrize("role", ["", "x" * 64])
def test_a_name_that_is_none_is_refused(postgres_place: Place, role: str) -> None:
    with pytest.raises(InvalidValue):
        grants(postgres_place.backend(), role)
