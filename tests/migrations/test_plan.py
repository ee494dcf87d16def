from __future__ import annotations

import pytest
from support.migrations.support import Place, tables

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.migrations import check, migrate, scripts

pytestmark = pytest.mark.recorded


def test_the_plan_of_an_empty_database_is_every_revision_and_rewrites_nothing(place: Place) -> None:
    """migrations MG-60: ``check``."""
    plan = check(place.backend())
    assert plan.state.state == "empty"
    assert tuple(planned.revision for planned in plan.revisions) == scripts.revisions()
    assert [rewrite.rows for planned in plan.revisions for rewrite in planned.rewrites] == [0]


def test_planning_creates_nothing(place: Place) -> None:
    """maintenance OP-2."""
    backend = place.backend()
    check(backend)
    assert tables(backend) == set()


def test_the_plan_says_which_lock_will_be_held(place: Place) -> None:
    """migrations MG-60."""
    assert "lock" in check(place.backend()).lock


def test_a_current_database_needs_nothing(place: Place) -> None:
    """migrations MG-60."""
    backend = place.at()
    assert (check(backend).state.state, check(backend).revisions) == ("current", ())


def test_a_database_that_no_store_would_open_has_a_plan_all_the_same(place: Place) -> None:
    """maintenance OP-5."""
    backend = place.at()
    connection = place.raw()
    connection.execute("INSERT INTO lastlight_meta (key, value) VALUES ('min_reader', '9000')")
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    assert (check(backend).state.state, check(backend).revisions) == ("incompatible", ())


def test_a_quick_plan_compares_nothing(place: Place) -> None:
    """maintenance OP-5: not even where the version is wrong."""
    backend = place.at()
    place.raw().execute(f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    assert [check(backend, quick=quick).actual for quick in (False, True)] == [scripts.head(), None]


def test_a_newer_schema_is_not_compared_with_what_this_version_makes(place: Place) -> None:
    """maintenance OP-5."""
    backend, connection = place.at(), place.raw()
    connection.execute("DROP INDEX ix_cron_fires_running")
    assert len(check(backend).differences) == 1
    connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    assert (check(backend).state.state, check(backend).differences) == ("ahead", ())


def test_a_version_of_another_program_alone_is_no_revision_of_ours(place: Place) -> None:
    """migrations MG-60."""
    connection = place.raw()
    connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('abc')")
    found = check(place.backend())
    assert (found.state.state, found.actual) == ("foreign", None)


def test_the_plan_counts_in_the_chosen_schema(postgres_place: Place) -> None:
    """messaging M-6, Postgres."""
    backend = postgres_place.backend(schema="Odd name")
    migrate(backend, "0001")
    raw = postgres_place.raw()
    for key in ("a", "b", "c"):
        raw.execute(
            'INSERT INTO "Odd name".messaging_sessions'
            " (id, platform, channel_id, user_id, created_at, last_activity_at)"
            " VALUES (%s, 'p', 'c', 'u', now(), now())",
            (key,),
        )
    planned = check(backend).revisions[0]
    assert [(rewrite.rows, rewrite.groups) for rewrite in planned.rewrites] == [(2, 1)]
