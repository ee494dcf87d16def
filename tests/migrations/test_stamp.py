"""``stamp``: the version of a database whose schema is that of a revision."""

from __future__ import annotations

import pytest
from support.each import with_each
from support.migrations.originals import LATER, ROWS, SEED, original
from support.migrations.snapshot import differences
from support.migrations.support import Place, catalogue

from lastlight_state.errors import InvalidValue, SchemaMismatch
from lastlight_state.migrations import check, current, migrate, scripts, stamp

ALL = scripts.revisions()
FORGET = "DROP TABLE lastlight_state_version"


@pytest.mark.slow
@with_each("revision", ["0001", ALL[-1]])
def test_a_database_that_lost_its_version_gets_it_back(place: Place, revision: str) -> None:
    """migrations MG-64: and is as it was before."""
    backend = place.at(revision)
    before = catalogue(backend)
    place.raw().execute(FORGET)
    result = stamp(backend, revision)
    assert (result.from_revision, result.to_revision, result.revisions) == (None, revision, ())
    assert current(backend) == revision
    assert differences(catalogue(backend), before) == []
    assert migrate(backend).state == "current"


def test_a_foreign_version_is_replaced(place: Place) -> None:
    """migrations MG-64: whatever the table held, and however much of it."""
    backend = place.at()
    raw = place.raw()
    raw.execute("INSERT INTO lastlight_state_version VALUES ('ae1027a6acf')")
    assert check(backend).state.state == "foreign"
    assert stamp(backend).state == "current"
    assert raw.execute("SELECT version_num FROM lastlight_state_version").fetchall() == [(ALL[-1],)]


@pytest.mark.slow
def test_a_revision_that_the_schema_is_not_at_is_refused(place: Place) -> None:
    """migrations MG-64: too new a revision names what is missing, too old a one what is there already."""
    backend = place.at("0001")
    with pytest.raises(SchemaMismatch, match=f"not the one of revision {ALL[1]}") as newer:
        stamp(backend, ALL[1])
    assert any("column messaging_sessions.title is missing" in line for line in newer.value.differences)
    assert current(backend) == "0001"
    migrate(backend)
    with pytest.raises(SchemaMismatch, match="not the one of revision 0001") as older:
        stamp(backend, "0001")
    assert "table run_transitions is there already, and a later revision makes one" in older.value.differences
    assert current(backend) == ALL[-1]


DRIFT = {
    "DROP INDEX ix_approvals_due": "index ix_approvals_due of workflow_approvals is missing",
    "CREATE UNIQUE INDEX mine ON executions (skill)": "which may refuse what this library writes",
    "ALTER TABLE executions DROP COLUMN price_table": "column executions.price_table is missing",
}


def test_a_schema_that_drifted_is_refused(place: Place) -> None:
    """migrations MG-64: with every difference."""
    backend = place.at()
    raw = place.raw()
    for statement in DRIFT:
        raw.execute(statement)
    with pytest.raises(SchemaMismatch) as caught:
        stamp(backend)
    assert len(caught.value.differences) == len(DRIFT)
    assert all(any(difference in line for line in caught.value.differences) for difference in DRIFT.values())


def test_whoever_knows_better_may_force_it(place: Place) -> None:
    """migrations MG-64: ``--force``."""
    backend = place.at()
    assert stamp(backend, "0001", force=True).state == "behind"
    assert current(backend) == "0001"


def test_extra_tables_and_columns_do_no_harm(place: Place) -> None:
    """migrations MG-28."""
    backend = place.at()
    raw = place.raw()
    raw.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
    raw.execute("ALTER TABLE executions ADD COLUMN mood TEXT")
    raw.execute("CREATE INDEX mine ON executions (mood)")
    raw.execute(FORGET)
    assert stamp(backend).state == "current"


@pytest.mark.slow
@pytest.mark.parametrize("tables_of", [SEED, LATER], ids=["first", "later"])
def test_what_was_taken_over_is_what_the_revisions_make(sqlite_place: Place, tables_of: str) -> None:
    """migrations MG-42: nothing is missing, nothing is otherwise."""
    original(sqlite_place, tables_of, ROWS)
    backend = sqlite_place.backend()
    migrate(backend)
    assert stamp(backend).state == "current"


def test_nothing_is_left_of_the_place_where_revisions_were_tried(postgres_place: Place) -> None:
    """migrations MG-64, Postgres."""
    backend = postgres_place.at()
    stamp(backend)
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'lastlight%'"
    assert postgres_place.raw().execute(schemas).fetchone() == (0,)


@pytest.mark.slow
def test_a_schema_of_its_own_is_compared_and_stamped(postgres_place: Place) -> None:
    """migrations MG-29, Postgres."""
    backend = postgres_place.backend(schema='Odd "name"')
    migrate(backend)
    postgres_place.raw().execute('DROP TABLE "Odd ""name""".lastlight_state_version')
    assert stamp(backend).state == "current"
    assert current(postgres_place.backend()) is None


def test_an_unknown_revision_is_no_version(place: Place) -> None:
    with pytest.raises(InvalidValue, match="unknown revision"):
        stamp(place.backend(), "9999")
