from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import make_url
from support.each import with_each
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.backends.base import Backend
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import NewerSchema, NotMigrated, SchemaMismatch
from lastlight_state.migrations import current, migrate, read_state, scripts, verify
from lastlight_state.workflows import Trigger

pytestmark = pytest.mark.recorded

HEAD = scripts.head()


class Counting:
    """A backend that counts what is asked of it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.asked: list[tuple[str, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def peek(self, *selects: str) -> Any:
        self.asked.append(selects)
        return self._backend.peek(*selects)


def at(place: Place, revision: str, min_reader: str | None = None) -> Backend:
    """A migrated database that says it is at another revision."""
    backend = place.at()
    connection = place.raw()
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    if min_reader is not None:
        connection.execute(f"INSERT INTO lastlight_meta (key, value) VALUES ('min_reader', '{min_reader}')")
    return backend


def test_nothing_is_empty_and_stays_nothing(place: Place) -> None:
    """migrations MG-27: verifying an empty database creates nothing, not even the version table or the file."""
    backend = place.backend()
    assert read_state(backend).state == "empty"
    with pytest.raises(NotMigrated) as caught:
        verify(backend)
    assert (caught.value.found, caught.value.head) == (None, HEAD)
    if place.name == "sqlite":
        assert not place.path.exists()
    else:
        relations = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        assert place.raw().execute(relations).fetchone() == (0,)


def test_an_older_revision_is_behind_and_the_error_says_the_command(place: Place) -> None:
    """migrations MG-21."""
    backend = place.at("0001")
    assert read_state(backend).state == "behind"
    with pytest.raises(NotMigrated, match="is at revision 0001") as caught:
        verify(backend)
    assert caught.value.command.startswith("lastlight-state migrate --url ")
    with pytest.raises(NotMigrated):
        StateStore.open(place.url, read_only=True, migrate=True)
    assert current(backend) == "0001"


def test_a_current_schema_costs_one_round_trip(place: Place) -> None:
    """migrations MG-20: the fast path."""
    backend = place.at()
    counting: Any = Counting(backend)
    assert verify(counting).state == "current"
    assert migrate(counting).revisions == ()
    assert len(counting.asked) == 2


def test_an_opening_asks_the_catalog_apart(place: Place) -> None:
    """migrations MG-20: the catalog of a server that has the tables says nothing of the server that is asked."""
    counting: Any = Counting(place.at())
    assert read_state(counting).state == "current"
    [(version, outline)] = counting.asked
    assert "pg_catalog" not in version
    assert "sqlite_master" not in version
    assert "version_num" not in outline


@with_each(
    ("statement", "says"),
    [
        ("ALTER TABLE run_loops DROP COLUMN done", "column run_loops.done is missing"),
        ("DROP TABLE scores", "table scores is missing"),
        ("DROP TABLE maintenance_receipts", "table maintenance_receipts is missing"),
    ],
)
def test_a_damaged_schema_is_refused_when_it_is_opened(place: Place, statement: str, says: str) -> None:
    """migrations MG-59: the SELECT for the version finds it; what is missing is named, and the command to run."""
    backend = place.at()
    place.raw().execute(statement)
    for ask, told in ((verify, f"revision {HEAD}, which it says it has"), (migrate, "restore it")):
        with pytest.raises(SchemaMismatch, match=told) as caught:
            ask(backend)
        assert caught.value.code == "damaged"
        assert caught.value.differences == (says,)
        assert ask is migrate or backend.command("check") in str(caught.value)


def test_a_guard_that_is_switched_off_is_refused_when_the_schema_is_opened(postgres_place: Place) -> None:
    """migrations MG-59, Postgres; additional columns, guards and tables of equal names elsewhere are no damage."""
    backend = postgres_place.at(schema="agents")
    migrate(backend)
    raw = postgres_place.raw()
    raw.execute("ALTER TABLE scores DISABLE TRIGGER ALL; ALTER TABLE agents.scores ADD COLUMN mood text")
    raw.execute("ALTER TABLE agents.executions ENABLE ALWAYS TRIGGER executions_no_delete")  # on replicas, too
    assert verify(backend).lacking == ()
    raw.execute("ALTER TABLE agents.scores DISABLE TRIGGER scores_no_delete")
    with pytest.raises(SchemaMismatch) as caught:
        verify(backend)
    assert caught.value.differences == ("trigger scores.scores_no_delete is switched off",)


def test_a_newer_schema_opens_while_it_permits_this_reader(place: Place) -> None:
    """migrations MG-22: everything is additive, so an older library works on a newer schema."""
    assert verify(at(place, "9999")).state == "ahead"


def test_a_newer_schema_may_name_the_oldest_reader(place: Place) -> None:
    """migrations MG-22."""
    state = verify(at(place, "9999", min_reader=HEAD))
    assert (state.state, state.min_reader) == ("ahead", HEAD)


def test_a_newer_schema_that_this_library_cannot_read_is_refused_and_not_called_behind(place: Place) -> None:
    """migrations MG-22."""
    backend = at(place, "9999", min_reader="9000")
    assert read_state(backend).state == "incompatible"
    for ask in (verify, migrate):
        with pytest.raises(NewerSchema) as caught:
            ask(backend)
        assert "behind" not in str(caught.value)
        assert caught.value.min_reader == "9000"


def test_migrating_a_newer_schema_changes_nothing(place: Place) -> None:
    """migrations MG-22: there is no way down."""
    result = migrate(at(place, "9999"))
    assert (result.state, result.from_revision, result.to_revision, result.revisions) == ("ahead", "9999", "9999", ())


@with_each(("revision", "second"), [("ae1027a6acf", None), (HEAD, "ae1027a6acf")])
def test_a_version_of_another_program_is_refused(place: Place, revision: str, second: str | None) -> None:
    backend = at(place, revision)
    if second is not None:
        place.raw().execute(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES ('{second}')")
    assert read_state(backend).state == "foreign"
    for ask in (verify, migrate):
        with pytest.raises(SchemaMismatch, match="ae1027a6acf', which is not a revision"):
            ask(backend)


def test_tables_of_ours_without_a_version_are_refused(place: Place) -> None:
    """Nothing is known about them; taking them for ours could lose what they hold."""
    place.raw().execute("CREATE TABLE executions (id TEXT)")
    backend = place.backend()
    assert read_state(backend).state == "unversioned"
    for ask in (verify, migrate):
        with pytest.raises(SchemaMismatch, match="no version of ours beside them"):
            ask(backend)


def test_a_version_table_without_a_row_is_no_version(place: Place) -> None:
    place.raw().execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    backend = place.backend()
    assert read_state(backend).state == "empty"
    assert migrate(backend).state == "current"


def test_tables_of_others_are_left_alone(place: Place) -> None:
    """migrations MG-28: extra tables, and another program's ``alembic_version``, beside ours."""
    connection = place.raw()
    connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    connection.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    migrate(place.backend())
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("ae1027a6acf",)]


def test_an_unfinished_copy_is_said_in_the_same_statement(place: Place) -> None:
    """maintenance OP-55: half the data is not served."""
    backend = place.at()
    place.raw().execute(
        "INSERT INTO maintenance_receipts (id, kind, state, owner, library_version, started_at, updated_at, policy)"
        " VALUES ('r', 'copy', 'running', 'me', '1', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z', '{}')"
    )
    counting: Any = Counting(backend)
    with pytest.raises(SchemaMismatch, match="unfinished copy"):
        verify(counting)
    assert len(counting.asked) == 1


def test_opening_a_current_database_imports_no_alembic(sqlite_place: Place, postgres_place: Place) -> None:
    """migrations MG-20: an open is a SELECT, and an import of Alembic takes longer than that."""
    sqlite_place.at()
    postgres_place.at()
    program = (
        "import sys\n"
        "from lastlight_state.store import StateStore\n"
        "for url in sys.argv[1:]:\n"
        "    StateStore.open(url, migrate=True).close()\n"
        "sys.exit(str(sorted({'alembic', 'mako'} & sys.modules.keys())))"
    )
    words = [sys.executable, "-c", program, sqlite_place.url, postgres_place.url]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


def test_a_role_without_rights_to_change_the_schema_can_open_and_work(postgres_place: Place) -> None:
    """migrations MG-30, Postgres."""
    postgres_place.at()
    admin = postgres_place.raw()
    role = f"least_{make_url(postgres_place.url).database}"
    admin.execute(f"CREATE ROLE {role} LOGIN")
    try:
        admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
        url = make_url(postgres_place.url).set(username=role)
        with StateStore.open(url.render_as_string(hide_password=False)) as store:
            run = store.workflows.runs.create("build", trigger=Trigger(id="t", type="api"), phase="plan")
            assert store.workflows.runs.get(run.id).status == "running"
    finally:
        admin.execute(f"DROP OWNED BY {role}")
        admin.execute(f"DROP ROLE {role}")
