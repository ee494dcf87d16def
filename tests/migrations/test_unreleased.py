"""Databases of development versions: their revisions 0002 to 0016 were never released."""

from __future__ import annotations

import io
from typing import Any

import pytest
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import create_engine
from support.cli.calls import lastlight_state
from support.each import with_each
from support.migrations.snapshot import differences
from support.migrations.support import Place, catalogue

from lastlight_state import StateStore
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, migrate, plain_command, read_state, script, scripts, upgrade, verify

UNRELEASED = [f"{number:04}" for number in range(2, 17)]
TOLD = "make the database again"


@pytest.fixture(params=["0001", "head"])
def older(request: pytest.FixtureRequest, place: Place) -> Place:
    """A database with the tables of a revision of today, whose version a test makes that of a development version."""
    place.at(request.param)
    return place


def at_each(place: Place) -> Any:
    """Make the database say that it is at each of these revisions, one after the other; yield each."""
    raw = place.raw()
    for revision in UNRELEASED:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
        yield revision


def test_no_revision_of_today_has_a_name_of_theirs() -> None:
    """migrations MG-71."""
    assert [revision for revision in UNRELEASED if scripts.was_never_released(revision)] == UNRELEASED
    assert set(UNRELEASED) & set(scripts.revisions()) == set()


def test_they_are_refused_by_name_whoever_asks(older: Place) -> None:
    """migrations MG-71: by opening, migrating, scripts and services, whatever tables there are; nothing changes."""
    backend, engine = older.backend(), create_engine(older.url)
    before = catalogue(backend)
    for revision in at_each(older):
        state = read_state(backend)
        assert (state.state, state.revision) == ("unreleased", revision)
        for ask in (verify, migrate, script):
            with pytest.raises(SchemaMismatch, match=f"holds '{revision}': .*{TOLD}") as caught:
                ask(backend)
            assert caught.value.code == "unreleased"
        for migrated in (True, False):
            with pytest.raises(SchemaMismatch, match=TOLD):
                StateStore.open(older.url, migrate=migrated)
        with pytest.raises(SchemaMismatch, match=TOLD), engine.begin() as connection:
            upgrade(connection)
        with pytest.raises(CommandError, match=TOLD):
            plain_command.act(backend, "upgrade", Config(stdout=io.StringIO()), lambda _: None)
        assert read_state(backend).revision == revision
    engine.dispose()
    assert differences(catalogue(backend), before) == []


def test_their_plan_has_no_revision_and_no_stamp(older: Place) -> None:
    """migrations MG-71: also where the tables are those of a revision of today."""
    backend = older.backend()
    for revision in at_each(older):
        for quick in (True, False):
            plan = check(backend, quick=quick)
            assert (plan.state.state, plan.state.revision) == ("unreleased", revision)
            assert (plan.revisions, plan.adoption, plan.differences, plan.actual) == ((), None, (), None)


@with_each("words", ["check", "migrate", "migrate --dry-run", "migrate --sql", "ls"])
def test_the_commands_refuse_them_by_name(words: str, place: Place) -> None:
    """migrations MG-71, MG-67: with exit code 1 and what to do."""
    place.at()
    for revision in at_each(place):
        said = lastlight_state(*words.split(), "--url", place.url, "--json")
        assert (said.code, said.error) == (1, "unreleased"), revision
        shown = lastlight_state(*words.split(), "--url", place.url)
        assert (TOLD in shown.err, revision in shown.out + shown.err) == (True, True)
