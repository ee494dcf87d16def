"""A current schema that lost something of what its revision made."""

from __future__ import annotations

import pytest
from sqlalchemy import NullPool, create_engine
from support.cli.calls import lastlight_state
from support.migrations.losses import KINDS, Loss, losses
from support.migrations.support import OLD_RUN, Place
from support.migrations.workers import Workers

from lastlight_state import StateStore
from lastlight_state.backends.base import Backend
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import (
    check,
    drift,
    mending,
    migrate,
    plain_command,
    read_state,
    script,
    scripts,
    upgrade,
    verify,
)
from lastlight_state.migrations.adoption.fit import blueprints

pytestmark = pytest.mark.recorded

ALL = [(product, kind) for product, kinds in KINDS.items() for kind in kinds]


def opens(backend: Backend) -> tuple[str, ...] | None:
    """What opening names as lost; None if a store would open."""
    try:
        verify(backend)
    except SchemaMismatch as error:
        return error.differences
    return None


def lost(loss: Loss, backend: Backend) -> None:
    """The look of an opening names what is lost, if it is needed."""
    state = read_state(backend)
    assert bool(state.lacking) is loss.needed, loss
    assert f"{loss.place} is missing" in [one.line for one in state.absent], loss


@pytest.fixture
def place(request: pytest.FixtureRequest, product: str) -> Place:
    """An empty place on the product."""
    made: Place = request.getfixturevalue("sqlite_place" if product == "sqlite" else "postgres_place")
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("product", "kind"), [(product, kind) for product, kind in ALL if kind != "column"])
def test_whatever_is_lost_is_named_by_opening_and_put_back_by_migrating(place: Place, kind: str) -> None:
    """migrations MG-59, MG-73: each thing of the newest revision, one at a time; both checks name it, too."""
    backend = place.at()
    raw = place.raw()
    [expected] = blueprints(backend, scripts.head())
    for loss in losses(backend.name, kind):
        raw.execute(loss.lose)
        lost(loss, backend)
        with backend.migration(1) as connection:
            shape = backend.shape(connection)
        assert f"{loss.place} is missing" in drift.difference_lines(shape, drift.promised_entries(backend.name)), loss
        assert any("is missing" in line for line in plain_command.difference_lines(shape, expected)), loss
        assert loss.place in migrate(backend).mended, loss
        assert read_state(backend).absent == (), loss
    assert drift.differences(backend) == ()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("product", "kind"), [(product, kind) for product, kind in ALL if kind == "column"])
def test_a_lost_column_is_named_by_opening_and_refused_by_migrating(place: Place, kind: str, every: int) -> None:
    """migrations MG-59, MG-73: each seventh column (as soak each), one at a time; what it held is in a backup."""
    backend = place.at()
    raw = place.raw()
    raw.execute("DROP VIEW progression_collections")  # in whose way a rename would be
    for loss in [*losses(backend.name, kind)][::every]:
        raw.execute(loss.lose)
        lost(loss, backend)
        with pytest.raises(SchemaMismatch, match="restore it") as caught:
            mending.refuse_lost(read_state(backend).absent)  # which migrating asks
        assert caught.value.differences == (f"{loss.place} is missing",)
        raw.execute(loss.restore or "")
        assert read_state(backend).lacking == (), loss
    migrate(backend)
    assert drift.differences(backend) == ()


@pytest.mark.parametrize("product", KINDS)
def test_check_names_each_thing_and_prints_the_statements_that_put_it_back(place: Place) -> None:
    """migrations MG-55, MG-73: the statements do by hand what migrating does, here for everything."""
    backend = place.at()
    raw = place.raw()
    gone = [loss for kind in KINDS[backend.name][:3] for loss in losses(backend.name, kind)]
    for loss in gone:
        raw.execute(loss.lose)
    plan = check(backend)
    assert {f"{loss.place} is missing" for loss in gone} == set(plan.differences)
    for statement in plan.mending:
        raw.execute(statement)
    assert check(backend).differences == ()
    StateStore.open(place.url, migrate=False).close()


@pytest.mark.parametrize("product", KINDS)
def test_opening_and_migrating_refuse_a_lost_column(place: Place) -> None:
    """migrations MG-59, MG-73: and nothing else that lacks is put back."""
    backend = place.at()
    place.raw().execute("ALTER TABLE run_loops RENAME COLUMN done TO lost")
    place.raw().execute("DROP INDEX uq_scores_current")
    expected = ("column run_loops.done is missing", "index scores.uq_scores_current is missing")
    assert opens(backend) == expected
    with pytest.raises(SchemaMismatch, match="restore it") as caught:
        migrate(backend)
    assert (caught.value.differences, opens(backend)) == (expected[:1], expected)
    assert check(backend).mending == ()


#: Two rows of which an index, and one of which a reference on Postgres, permits but none.
SESSION = (
    "INSERT INTO messaging_sessions (id, platform, channel_id, user_id, agent_session_id, active, created_at, "
    "last_activity_at) VALUES ('{}', 'p', 'c', 'u', 'a', true, '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')"
)
LOOP = "INSERT INTO run_loops (run_id, loop_id, updated_at) VALUES ('nobody', 'l', '2026-01-01T00:00:00.000Z')"


@pytest.mark.parametrize("product", KINDS)
def test_rows_in_the_way_are_named_and_nothing_is_put_back(place: Place) -> None:
    """migrations MG-74: of a unique index and of a reference; once they are changed, the next attempt succeeds."""
    backend = place.at()
    raw = place.raw()
    gone = ["DROP INDEX uq_messaging_sessions_active_key", "DROP INDEX idx_msg_sessions_unique_active"]
    on = "" if place.name == "sqlite" else " ON workflow_runs"
    for statement in (*gone, f"DROP TRIGGER workflow_runs_succeeded_stays{on}"):
        raw.execute(statement)
    raw.execute(SESSION.format("one"))
    raw.execute(SESSION.format("two"))
    rows = "rows of messaging_sessions have equal keys: id='one'; id='two'"
    expected = [f"index messaging_sessions.uq_messaging_sessions_active_key: {rows}"]
    if place.name == "postgresql":
        raw.execute("ALTER TABLE run_loops DROP CONSTRAINT fk_run_loops_run_id")
        raw.execute(LOOP)
        rows = "rows of run_loops refer to no row: run_id='nobody', loop_id='l'"
        expected.insert(0, f"constraint run_loops.foreign key (run_id): {rows}")
    before = read_state(backend).absent
    with pytest.raises(SchemaMismatch, match="rows do not permit") as caught:
        migrate(backend)
    assert (caught.value.code, list(caught.value.differences)) == ("damaged", expected)
    assert read_state(backend).absent == before
    raw.execute("UPDATE messaging_sessions SET active = false WHERE id = 'one'")
    if place.name == "postgresql":
        raw.execute("BEGIN")
        raw.execute("INSERT INTO maintenance_permits (receipt_id) VALUES ('any')")
        raw.execute("DELETE FROM run_loops")
        raw.execute("DELETE FROM maintenance_permits")
        raw.execute("COMMIT")
    assert len(migrate(backend).mended) == len(before)
    assert opens(backend) is None


def test_what_is_switched_off_on_postgres_is_switched_on(postgres_place: Place) -> None:
    """migrations MG-73, Postgres: a guard, an index whose making failed, a reference that was not validated."""
    backend = postgres_place.at()
    raw = postgres_place.raw()
    raw.execute("ALTER TABLE scores DISABLE TRIGGER scores_no_delete")
    raw.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'uq_scores_current'::regclass")
    raw.execute("ALTER TABLE run_loops DROP CONSTRAINT fk_run_loops_run_id")
    reference = "FOREIGN KEY (run_id) REFERENCES workflow_runs (id) NOT VALID"
    raw.execute(f"ALTER TABLE run_loops ADD CONSTRAINT fk_run_loops_run_id {reference}")
    expected = ("constraint run_loops.foreign key (run_id)", "index scores.uq_scores_current",
                "trigger scores.scores_no_delete")  # fmt: skip
    assert opens(backend) == tuple(f"{place} is switched off" for place in expected)
    assert migrate(backend).mended == expected
    assert check(backend).differences == ()


@pytest.mark.parametrize("product", KINDS)
def test_an_index_in_another_form_is_a_persons_to_drop(place: Place) -> None:
    """migrations MG-74: opening refuses it, migrating says the statement, and drops nothing."""
    backend = place.at()
    raw = place.raw()
    raw.execute("DROP INDEX uq_run_events_event_id")
    raw.execute("CREATE INDEX uq_run_events_event_id ON run_events (run_id, event_id)")
    assert opens(backend) == ("index run_events.uq_run_events_event_id is not unique",)
    with pytest.raises(SchemaMismatch, match="in another form") as caught:
        migrate(backend)
    [line] = caught.value.differences
    raw.execute(line.partition("run: ")[2])
    assert migrate(backend).mended == ("index run_events.uq_run_events_event_id",)
    assert check(backend).differences == ()


@pytest.mark.parametrize("product", KINDS)
def test_a_trigger_that_is_put_back_makes_the_rows_that_it_would_have_made(place: Place) -> None:
    """migrations MG-73: a run that began without its lease would be reaped by nobody."""
    backend = place.at()
    raw = place.raw()
    on = "" if place.name == "sqlite" else " ON workflow_runs"
    raw.execute(f"DROP TRIGGER workflow_runs_lease_insert{on}")
    raw.execute(OLD_RUN)
    assert list(raw.execute("SELECT run_id FROM run_leases")) == []
    migrate(backend)
    assert list(raw.execute("SELECT run_id FROM run_leases")) == [("r",)]


@pytest.mark.parametrize("product", KINDS)
def test_of_eight_deployers_one_puts_back_what_is_lost(place: Place, workers: Workers) -> None:
    """migrations MG-75: the others find it done."""
    backend = place.at()
    place.raw().execute("DROP INDEX uq_scores_current")
    place.raw().execute("DROP INDEX uq_run_events_event_id")
    told = workers.migrate(place.url, members=8)
    expected = ["index run_events.uq_run_events_event_id", "index scores.uq_scores_current"]
    assert sorted(told) == [[], [], [], [], [], [], [], expected]
    assert opens(backend) is None


@pytest.mark.slow
@pytest.mark.parametrize("product", KINDS)
def test_a_deployer_that_is_killed_while_it_puts_back_changes_nothing(place: Place, workers: Workers) -> None:
    """migrations MG-75: at any statement; the next one does all of it."""
    backend = place.at()
    place.raw().execute("DROP INDEX uq_scores_current")
    place.raw().execute("DROP INDEX uq_run_events_event_id")
    before = read_state(backend).absent
    statement = 1
    while workers.migrate(place.url, die_at=statement) == [None]:
        assert read_state(backend).absent == before
        statement += 1
    assert statement > len(before)
    assert opens(backend) is None


@pytest.mark.parametrize("product", KINDS)
def test_a_service_that_migrates_its_own_tables_gets_back_what_is_lost(place: Place) -> None:
    """migrations MG-73, MG-50: on its connection, and undone with its transaction."""
    backend = place.at()
    place.raw().execute("DROP INDEX uq_scores_current")
    engine = create_engine(place.url, poolclass=NullPool)
    for ends in ("rollback", "commit"):
        with engine.connect() as connection:
            assert upgrade(connection).mended == ("index scores.uq_scores_current",)
            getattr(connection, ends)()
        assert (opens(backend) is None) is (ends == "commit")


@pytest.mark.parametrize("product", KINDS)
def test_a_script_puts_back_what_is_lost(place: Place) -> None:
    """migrations MG-62, MG-73: ``migrate --sql``, executed by hand."""
    backend = place.at()
    raw = place.raw()
    raw.execute("DROP INDEX uq_scores_current")
    written = script(backend)
    assert written is not None
    (raw.executescript if place.name == "sqlite" else raw.execute)(written)
    assert (opens(backend), script(backend)) == (None, None)


@pytest.mark.parametrize("product", KINDS)
def test_the_commands_name_what_is_lost_and_put_it_back(place: Place) -> None:
    """migrations MG-55, MG-73: ``check``, ``doctor`` and ``migrate`` with its dry run; no other cause is named."""
    place.at()
    place.raw().execute("DROP INDEX uq_scores_current")
    said = lastlight_state("check", "--url", place.url)
    assert said.code == 1
    assert "index scores.uq_scores_current is missing" in said.out
    assert "CREATE UNIQUE INDEX uq_scores_current ON scores" in said.out
    assert f"to put back what is lost, run: {place.backend().command('migrate')}" in said.err
    assert "log beside it" not in said.err
    [found] = lastlight_state("doctor", "--only", "DOC-02", "--url", place.url, "--json").data["findings"]
    assert (found["samples"], found["remedy"].split()[:2]) == (
        ["index scores.uq_scores_current is missing"],
        ["lastlight-state", "migrate"],
    )
    planned = lastlight_state("migrate", "--dry-run", "--url", place.url)
    assert (planned.code, "CREATE UNIQUE INDEX uq_scores_current" in planned.out) == (0, True)
    done = lastlight_state("migrate", "--url", place.url)
    assert (done.code, "put back index scores.uq_scores_current" in done.out) == (0, True)
    assert "nothing to do" in lastlight_state("migrate", "--url", place.url).out
    assert lastlight_state("check", "--url", place.url).code == 0


@pytest.mark.logs("put back what the schema had lost")
def test_opening_a_file_puts_back_what_it_lost_unless_it_is_only_verified(sqlite_place: Place) -> None:
    """migrations MG-73, SQLite, where opening migrates: with a warning in the log."""
    sqlite_place.at()
    sqlite_place.raw().execute("DROP INDEX uq_scores_current")
    for read_only in (False, True):
        with pytest.raises(SchemaMismatch, match="to put back what is lost, run: lastlight-state migrate") as caught:
            StateStore.open(sqlite_place.url, migrate=False, read_only=read_only)
        assert caught.value.code == "damaged"
    StateStore.open(sqlite_place.url).close()
    StateStore.open(sqlite_place.url, migrate=False).close()
