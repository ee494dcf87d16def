"""A current database whose schema is not what its revision makes."""

from __future__ import annotations

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.migrations.eras import newest_shape
from support.migrations.support import Place

from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, drift, migrate, script, scripts, verify

pytestmark = pytest.mark.recorded

HEAD = scripts.head()
LOST = "ALTER TABLE run_loops DROP COLUMN done"
GUARD = {"sqlite": "DROP TRIGGER run_transitions_no_update",
         "postgresql": "ALTER TABLE run_transitions DISABLE TRIGGER run_transitions_no_update"}  # fmt: skip


def test_the_list_of_what_the_newest_revision_makes_is_up_to_date(place: Place) -> None:
    """migrations MG-55: otherwise run ``make record``."""
    backend = place.backend()
    file = scripts.folder() / "shapes" / f"{backend.name}.txt"
    newest = [newest_shape(backend)] * len(scripts.revisions())
    expected = [line.rpartition("\t")[0] for line in drift.lines_of(backend, newest)]  # test_..._recognised: since when
    assert [line.rpartition("\t")[0] for line in file.read_text("utf-8").splitlines()] == expected


def test_a_sound_schema_has_no_differences(place: Place) -> None:
    """migrations MG-55: whatever else is there."""
    backend = place.at()
    place.raw().execute("ALTER TABLE executions ADD COLUMN mood TEXT")
    place.raw().execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
    assert check(backend).differences == ()


def test_what_is_lost_or_switched_off_is_named(place: Place) -> None:
    """migrations MG-55: exit code 1; ``--quick`` looks at the revision alone."""
    place.at()
    place.raw().execute(LOST)
    place.raw().execute(GUARD[place.name])
    guard = "missing" if place.name == "sqlite" else "switched off"
    expected = ["column run_loops.done is missing", f"trigger run_transitions.run_transitions_no_update is {guard}"]
    said = lastlight_state("check", "--url", place.url, "--json")
    assert (said.code, said.error, said.data["state"], said.data["differences"]) == (1, "damaged", "current", expected)
    shown = lastlight_state("check", "--url", place.url)
    assert all(line in shown.out for line in expected)
    assert lastlight_state("check", "--quick", "--url", place.url).code == 0


@with_each("revision", scripts.revisions())
def test_a_schema_is_recognised_without_its_version(place: Place, revision: str) -> None:
    """migrations MG-57: nothing is tried, only names are compared."""
    assert drift.recognised_revision(place.at(revision)) == revision


@pytest.mark.parametrize("revision", scripts.revisions()[1:])
def test_a_lost_version_is_answered_with_the_command_that_writes_it(place: Place, revision: str) -> None:
    """migrations MG-57: by opening, by migrating and by ``check``."""
    backend = place.at(revision)
    place.raw().execute("DROP TABLE lastlight_state_version")
    for ask in (verify, migrate, script):
        with pytest.raises(SchemaMismatch, match=f"run: lastlight-state stamp --to {revision}"):
            ask(backend)
    said = lastlight_state("check", "--url", place.url)
    assert (said.code, f"stamp --to {revision}" in said.err) == (1, True)


@with_each(("real", "said"), [(HEAD, "0001"), ("0001", HEAD), ("0001", "x"), (HEAD, "x")])
def test_a_wrong_version_is_answered_with_the_command_that_corrects_it(place: Place, real: str, said: str) -> None:
    """migrations MG-58: nothing is applied to a schema that is another one."""
    backend = place.at(real)
    place.raw().execute(f"UPDATE lastlight_state_version SET version_num = '{said}'")
    for ask in (migrate, script):
        with pytest.raises(SchemaMismatch, match=f"the schema is that of revision {real}; run: .* stamp --to {real}"):
            ask(backend)
    checked = lastlight_state("check", "--url", place.url, "--json")
    assert (checked.code, checked.error, checked.data["actual"]) == (1, "wrong_version", real)


def test_a_database_with_nothing_of_ours_is_at_no_revision(place: Place) -> None:
    """migrations MG-58."""
    place.raw().execute("CREATE TABLE orders (id TEXT)")
    assert drift.recognised_revision(place.backend()) is None


def test_a_current_version_of_an_older_schema_is_wrong(place: Place) -> None:
    """migrations MG-58: ``check`` says which, beside what lacks."""
    place.at("0001")
    place.raw().execute(f"UPDATE lastlight_state_version SET version_num = '{scripts.head()}'")
    said = lastlight_state("check", "--url", place.url, "--json")
    assert (said.code, said.error, said.data["actual"]) == (1, "wrong_version", "0001")
    assert "table run_events is missing" in said.data["differences"]


def test_a_schema_of_its_own_is_compared(postgres_place: Place) -> None:
    """migrations MG-29, MG-55, Postgres."""
    backend = postgres_place.backend(schema="Odd name")
    migrate(backend)
    assert check(backend).differences == ()
    postgres_place.raw().execute('ALTER TABLE "Odd name".run_loops DROP COLUMN done')
    assert check(backend).differences == ("column run_loops.done is missing",)


def test_waiting_ends_when_the_schema_fits_or_the_time_is_over(place: Place) -> None:
    """migrations MG-56: at once where it fits, and where no waiting helps."""
    assert lastlight_state("check", "--wait", "0", "--url", place.url).code in (3, 6)
    migrate(place.backend())
    assert lastlight_state("check", "--wait", "600", "--url", place.url).code == 0
    place.raw().execute("UPDATE lastlight_state_version SET version_num = '9999'")
    assert lastlight_state("check", "--wait", "600", "--url", place.url).code == 0
    assert lastlight_state("check", "--url", place.url).code == 4
    place.raw().execute("UPDATE lastlight_state_version SET version_num = 'abc'")
    assert lastlight_state("check", "--wait", "600", "--url", place.url).code == 1


@with_each("seconds", ["-1", "nan", "1e9"])
def test_a_wait_that_is_no_time_is_refused(seconds: str, sqlite_place: Place) -> None:
    """migrations MG-56."""
    assert lastlight_state("check", "--wait", seconds, "--url", sqlite_place.url).code == 2
