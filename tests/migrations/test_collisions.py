"""Tables of another program that have the names of ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from support.cli.calls import lastlight_state
from support.migrations.support import Place, tables

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, migrate, runner, script, scripts
from lastlight_state.migrations.state import read_state
from lastlight_state.testing import Database

#: What a database has when the other program's tables are found in it.
BEGINNINGS: dict[str, Callable[[Place], Backend]] = {
    "nothing": lambda place: place.backend(),
    "an older revision": lambda place: place.at("0001"),
}
LINES = tuple(f"table {name} is there already, and a later revision makes one" for name in ("sandboxes", "scores"))


@pytest.fixture(params=BEGINNINGS)
def crowded(request: pytest.FixtureRequest, place: Place) -> Backend:
    """A database in which another program has two tables of a later revision."""
    backend = BEGINNINGS[request.param](place)
    for table in ("scores", "sandboxes"):
        place.raw().execute(f"CREATE TABLE {table} (id TEXT)")
    return backend


def test_tables_that_are_in_the_way_are_named_and_nothing_is_made(crowded: Backend) -> None:
    """migrations MG-70: all of them, with what puts ours elsewhere."""
    before = tables(crowded)
    with pytest.raises(SchemaMismatch, match="`--schema NAME` puts ours elsewhere") as caught:
        migrate(crowded)
    assert (caught.value.code, caught.value.differences) == ("collision", LINES)
    assert tables(crowded) == before


def test_the_plan_names_tables_that_are_in_the_way(crowded: Backend) -> None:
    """migrations MG-70: and no revision."""
    plan = check(crowded)
    assert (plan.revisions, plan.adoption, plan.differences) == ((), None, LINES)


def test_no_script_is_written_past_tables_that_are_in_the_way(place: Place) -> None:
    """migrations MG-70, MG-63."""
    backend = place.at("0001")
    place.raw().execute("CREATE TABLE scores (id TEXT)")
    with pytest.raises(SchemaMismatch) as caught:
        script(backend)
    assert caught.value.differences == LINES[1:]


def test_tables_of_the_last_revision_that_is_wanted_are_in_the_way(place: Place) -> None:
    """migrations MG-70: as those of the revisions before it are."""
    backend = place.at("0001")
    place.raw().execute("CREATE TABLE scores (id TEXT)")
    with pytest.raises(SchemaMismatch) as caught:
        migrate(backend, scripts.revisions()[1])
    assert caught.value.differences == LINES[1:]


def test_tables_of_later_revisions_are_not_in_the_way_of_earlier_ones(place: Place) -> None:
    """migrations MG-70, MG-61."""
    backend = place.backend()
    place.raw().execute("CREATE TABLE scores (id TEXT)")
    assert migrate(backend, "0001").to_revision == "0001"


def test_tables_elsewhere_on_the_search_path_are_not_in_the_way(postgres_database: Database) -> None:
    """migrations MG-70, Postgres: ours go to the first schema of the path."""
    raw = postgres_database.raw()
    raw.execute("CREATE SCHEMA first_of_path")
    raw.execute("CREATE SCHEMA elsewhere")
    raw.execute("CREATE TABLE elsewhere.scores (id TEXT)")
    path = "options=-csearch_path%3Dfirst_of_path,elsewhere"
    url = f"{postgres_database.url}{'&' if '?' in postgres_database.url else '?'}{path}"
    with closing(open_backend(url, Options())) as backend:
        assert check(backend).differences == ()
        assert script(backend) is not None
        raw.execute("CREATE TABLE first_of_path.sandboxes (id TEXT)")
        assert check(backend).differences == LINES[:1]


def test_another_failure_is_told_as_it_is(place: Place) -> None:
    """migrations MG-70: only tables are such names."""
    backend = place.at("0001")
    place.raw().execute("CREATE VIEW run_events AS SELECT 1 AS id")
    with pytest.raises(Exception, match="run_events"):
        migrate(backend)


def test_names_that_another_migration_has_used_meanwhile_are_not_in_the_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-70: two services migrate at the same time."""
    backend = place.at("0001")
    known = read_state(backend)
    migrate(backend)
    monkeypatch.setattr(runner, "read_state", lambda _: known)
    assert migrate(backend).revisions == ()


def test_the_commands_name_tables_that_are_in_the_way(place: Place) -> None:
    """migrations MG-70, MG-67: check ends with 1."""
    backend = place.at("0001")
    place.raw().execute("CREATE TABLE scores (id TEXT)")
    backend.close()
    said = lastlight_state("check", "--url", place.url)
    assert (said.code, "in the way" in said.out, LINES[1] in said.out) == (1, True, True)
    assert "--schema NAME" in said.err
    for command in (("migrate",), ("migrate", "--dry-run"), ("migrate", "--sql")):
        said = lastlight_state(*command, "--url", place.url)
        assert said.code == 1, command
        assert LINES[1] in said.err
