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


@pytest.fixture(params=("sqlite", "postgresql"))
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Place]]:
    """Three places without a database."""
    if request.param == "sqlite":
        made = [Place("sqlite", lambda _, n=n: str(tmp_path / f"{n}.db")) for n in range(3)]  # type: ignore[misc]
        yield made
    else:
        server: ThrowawayPostgres = request.getfixturevalue("postgres_server")
        with server.database() as one, server.database() as two, server.database() as three:
            made = [Place("postgresql", lambda _, url=url: url) for url in (one, two, three)]  # type: ignore[misc]
            yield made
            for place in made:
                place.close()
    for place in made:
        place.close()


def rows(place: Place) -> list[list[object]]:
    """Return the rows that revisions store."""
    stored = ("lastlight_state_version", "message_types", "invocation_kinds", "source_kinds")
    return [place.raw().execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in stored]


def test_kept_statements_make_the_database_that_the_revisions_make(places: list[Place], replaying: None) -> None:
    """A replay is what other tests have instead of the revisions."""
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
