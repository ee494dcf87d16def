"""The new databases of other tests, made by the statements of the first migration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.migrations import replayed
from support.migrations.snapshot import differences
from support.migrations.support import Place, catalogue

from lastlight_state.migrations import migrate
from lastlight_state.testing.postgres import ThrowawayPostgres


@pytest.fixture
def replaying() -> Iterator[None]:
    """Let migrations run kept statements, and none that another test has kept."""
    replayed.install()
    replayed._kept.clear()
    yield
    replayed.remove()


def at(name: str, url: str) -> Place:
    """Return the place of a URL."""
    return Place(name, lambda _: url)


@pytest.fixture(params=("sqlite", "postgresql"))
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Place]]:
    """Three places without a database."""
    if request.param == "sqlite":
        made = [at("sqlite", str(tmp_path / f"{number}.db")) for number in range(3)]
        yield made
    else:
        server: ThrowawayPostgres = request.getfixturevalue("postgres_server")
        with server.database() as one, server.database() as two, server.database() as three:
            made = [at("postgresql", url) for url in (one, two, three)]
            yield made
            for place in made:
                place.close()
    for place in made:
        place.close()


def rows(place: Place) -> list[list[object]]:
    """Return the rows that revisions store."""
    stored = ("lastlight_state_version", "message_types", "invocation_kinds", "source_kinds")
    return [place.raw().execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in stored]


@pytest.mark.slow
def test_kept_statements_make_the_database_that_the_revisions_make(places: list[Place], replaying: None) -> None:
    """Compare what other tests have with what the revisions make."""
    first, second, third = places
    migrate(first.backend())
    [kept] = replayed._kept.values()
    assert len(kept) > 100
    migrate(second.backend())
    replayed.remove()
    migrate(third.backend())
    for other in (first, second):
        assert differences(catalogue(other.backend()), catalogue(third.backend())) == []
        assert rows(other) == rows(third)
