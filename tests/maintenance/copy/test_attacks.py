"""Copies that are killed at any instant lack nothing in the end."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.filled_store import scene
from support.maintenance import attacked_copy
from support.preloaded import run_program

from lastlight_state import StateStore
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database, ThrowawayPostgres
from lastlight_state.testing.postgres import connect

DIRECTIONS = ["sqlite-sqlite", "sqlite-postgres", "postgres-sqlite"]
#: Tables in which a copy has rows of its own.
OWN = {"maintenance_receipts", "copy_progress"}


def rows_of(raw: Any) -> dict[str, int]:
    """How many rows each table has, by a driver that knows nothing of this library."""
    return {
        table.name: raw.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
        for table in METADATA.sorted_tables
        if table.name not in OWN
    }


def attack(database: Database, target: str, seed: int | str) -> tuple[int, dict[str, int]]:
    """How many attempts were killed, and the rows of the target, which the library has compared as well."""
    program = [sys.executable, attacked_copy.__file__, database.url, target, str(seed)]
    done = run_program(program, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, (seed, done.stderr)
    plain = target.removeprefix("sqlite:///")
    with closing(sqlite3.connect(plain) if plain != target else connect(target)) as raw:
        found = rows_of(raw)
    with StateStore.open(target) as copied, StateStore.open(database.url) as source:
        assert _digests(copied, database) == _digests(source, database), seed
    return int(done.stdout), found


def _digests(store: StateStore, database: Database) -> set[tuple[str, int, str]]:
    plan = store.maintenance.copy.plan(f"{database.state_dir}/unmade.db")
    return {(one.name, one.rows, one.digest) for one in plan.tables if one.name not in OWN}


@pytest.fixture
def targets(postgres_server: ThrowawayPostgres, tmp_path: Path) -> Iterator[Any]:
    """What makes the URL of a new, empty target on a product."""
    made: list[str] = []

    def target(product: str) -> str:
        if product == "sqlite":
            made.append("")
            return f"sqlite:///{tmp_path}/target-{len(made)}.db"
        made.append(postgres_server.create_database())
        return made[-1]

    yield target
    for url in filter(None, made):
        postgres_server.drop_database(url)


def rounds(request: pytest.FixtureRequest, targets: Any, direction: str, count: int) -> list[int]:
    """Attack so many copies; how many attempts of each were killed."""
    source, _, product = direction.partition("-")
    database: Database = request.getfixturevalue(f"{source}_database")
    scene(database)
    expected, kills = rows_of(database.raw()), []
    for _ in range(count):
        killed, found = attack(database, targets(product), random.randrange(2**32))
        assert found == expected
        kills.append(killed)
    return kills


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_copy_that_is_killed_at_any_instant_lacks_no_row(
    request: pytest.FixtureRequest, targets: Any, direction: str
) -> None:
    """maintenance OP-56, M-100."""
    rounds(request, targets, direction, 1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_many_copies_that_are_killed_at_any_instant_lack_no_row(
    request: pytest.FixtureRequest, targets: Any, direction: str
) -> None:
    """maintenance OP-56, M-100."""
    kills = rounds(request, targets, direction, 40)
    print(direction, len(kills), "copies,", sum(kills), "kills")  # noqa: T201 - with -s


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_copy_that_is_killed_at_any_step_lacks_no_row(
    request: pytest.FixtureRequest, targets: Any, direction: str
) -> None:
    """maintenance M-100: before each statement of either side, around each commit and each batch. STEP takes fewer."""
    source, _, product = direction.partition("-")
    database: Database = request.getfixturevalue(f"{source}_database")
    scene(database)
    expected, killed = rows_of(database.raw()), 0
    for number in itertools.count(1, int(os.environ.get("STEP", "1"))):
        died, found = attack(database, targets(product), f"at:{number}")
        assert found == expected, number
        if not died:
            break
        killed += 1
    print(direction, killed, "kills")  # noqa: T201 - with -s
    assert killed > 0
