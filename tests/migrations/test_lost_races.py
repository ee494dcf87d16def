"""Somebody changes the schema after a migration has looked and before it has the lock."""

from __future__ import annotations

import io
from typing import Any

import pytest
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import create_engine
from support.between import before
from support.migrations.originals import ROWS, SEED, original
from support.migrations.support import Place, tables

from lastlight_state.backends.base import Backend
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import apply, current, migrate, plain_command, runner, scripts, stamp, upgrade

ALL = tuple(scripts.revisions())


def stamp_plainly(backend: Backend, to: str = ALL[-1]) -> None:
    """What ``alembic stamp`` does on this backend."""
    plain_command.act(backend, "do_stamp", Config(), lambda connection: apply.write_version(connection, to))


both_stamps = pytest.mark.parametrize(
    ("stamping", "refusal"),
    [(stamp, SchemaMismatch), (stamp_plainly, CommandError)],
    ids=["runner.stamp", "plain_command._stamp"],
)


@pytest.mark.parametrize("start", [None, "0001"])
def test_what_another_has_migrated_meanwhile_is_found_done(
    place: Place, start: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-25: runner.migrate reads the version again under the lock."""
    backend = place.backend() if start is None else place.at(start)
    other = place.backend()
    happened = before(monkeypatch, backend, "migration", lambda: migrate(other))
    result = migrate(backend)
    assert happened
    assert (result.state, result.from_revision, result.revisions) == ("current", ALL[-1], ())


def test_what_another_has_migrated_meanwhile_is_nothing_to_do_for_the_plain_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-69: plain_command.act reads the version under the lock."""
    backend, other, said = place.at("0001"), place.backend(), io.StringIO()
    happened = before(monkeypatch, backend, "migration", lambda: migrate(other))
    plain_command.act(backend, "upgrade", Config(stdout=said), lambda _: None)
    assert happened
    assert said.getvalue() == f"nothing to do: {backend.location}\n"


@pytest.mark.usefixtures("with_next_revision")
def test_a_database_that_another_has_brought_farther_is_not_brought_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-25: runner.migrate with ``to``."""
    backend, other = place.at("0001"), place.backend()
    happened = before(monkeypatch, backend, "migration", lambda: migrate(other))
    result = migrate(backend, "0002")
    assert happened
    assert (result.to_revision, result.revisions) == ("9999", ())
    assert current(backend) == "9999"


def test_a_foreign_table_that_came_meanwhile_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """migrations MG-43: runner.migrate; nothing is made."""
    backend, raw = place.backend(), place.raw()
    happened = before(monkeypatch, backend, "migration", lambda: raw.execute("CREATE TABLE executions (id TEXT)"))
    with pytest.raises(SchemaMismatch):
        migrate(backend)
    assert happened
    assert tables(backend) == {"executions"}


@pytest.mark.slow
@pytest.mark.parametrize("reached", ["0001", ALL[-1]])
def test_what_another_has_taken_over_meanwhile_is_upgraded_alone(
    sqlite_place: Place, reached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-25, MG-40: runner._adopt looks again under the lock."""
    original(sqlite_place, SEED, ROWS)
    backend, other = sqlite_place.backend(), sqlite_place.backend()
    happened = before(monkeypatch, backend, "migration", lambda: migrate(other, reached))
    result = migrate(backend)
    assert happened
    assert (result.adopted, result.from_revision) == (False, reached)
    assert result.revisions == ALL[ALL.index(reached) + 1 :]


def test_an_original_that_was_changed_meanwhile_is_not_taken_over(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-43: runner._adopt compares under the lock; nothing is changed."""
    raw = original(sqlite_place, SEED, ROWS)
    backend = sqlite_place.backend()
    happened = before(
        monkeypatch, backend, "migration", lambda: raw.execute("ALTER TABLE executions RENAME COLUMN skill TO deed")
    )
    with pytest.raises(SchemaMismatch):
        migrate(backend)
    assert happened
    assert current(backend) is None


@both_stamps
def test_a_schema_that_was_changed_meanwhile_is_not_stamped(
    place: Place, stamping: Any, refusal: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-64, MG-76: the schema is compared under the lock."""
    backend, raw = place.at(), place.raw()
    raw.execute("DELETE FROM lastlight_state_version")
    happened = before(
        monkeypatch, backend, "migration", lambda: raw.execute("ALTER TABLE executions RENAME COLUMN skill TO deed")
    )
    with pytest.raises(refusal, match=r"executions\.skill"):
        stamping(backend)
    assert happened
    assert current(backend) is None


@pytest.mark.slow
@both_stamps
def test_a_schema_that_another_has_upgraded_meanwhile_is_not_stamped_as_older(
    place: Place, stamping: Any, refusal: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-64, MG-76: a later upgrade would make again what is there."""
    backend, other = place.at("0001"), place.backend()
    happened = before(monkeypatch, backend, "migration", lambda: migrate(other))
    with pytest.raises(refusal, match="a later revision makes one"):
        stamping(backend, "0001")
    assert happened
    assert current(backend) == ALL[-1]


@pytest.mark.slow
@both_stamps
def test_a_schema_that_another_has_upgraded_meanwhile_is_stamped_as_what_it_is(
    place: Place, stamping: Any, refusal: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-64, MG-76: what was too old for the stamp before is not refused."""
    backend, other, raw = place.at("0001"), place.backend(), place.raw()
    with pytest.raises(refusal):
        stamping(backend, ALL[-1])

    def upgrade_and_lose_the_version() -> None:
        migrate(other)
        raw.execute("DELETE FROM lastlight_state_version")

    happened = before(monkeypatch, backend, "migration", upgrade_and_lose_the_version)
    stamping(backend, ALL[-1])
    assert happened
    assert current(backend) == ALL[-1]


def test_a_service_finds_done_what_another_has_migrated_before_its_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-50: runner.upgrade reads the version under the lock."""
    other, engine = place.at("0001"), create_engine(place.url)
    happened = before(monkeypatch, runner, "hold_migration_lock", lambda: migrate(other))
    with engine.begin() as connection:
        result = upgrade(connection)
    engine.dispose()
    assert happened
    assert (result.from_revision, result.revisions) == (ALL[-1], ())
