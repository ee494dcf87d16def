"""Every value that an output can hold arrives unchanged, however it is moved and wherever it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import localcontext
from pathlib import Path

import pytest
from support.outputs import every_value

from lastlight_state import StateStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database

DAY = 86_400
PAIRS = [(one, other) for one in ("sqlite", "postgres") for other in ("sqlite", "postgres")]


def copied(source: Database, store: StateStore, target: str, folder: Path) -> None:
    """By a copy."""
    store.maintenance.copy.run(target, migrate=True, batch_rows=7)


def restored(source: Database, store: StateStore, target: str, folder: Path) -> None:
    """By a backup that is restored."""
    backup = store.maintenance.backup
    backup.create(folder / "backup")
    backup.restore(folder / "backup", target, with_logs=False)


def exported(source: Database, store: StateStore, target: str, folder: Path) -> None:
    """By a bundle."""
    store.maintenance.bundles.export("run", "r", folder / "r.zip")
    loaded(target, folder / "r.zip")


def archived(source: Database, store: StateStore, target: str, folder: Path) -> None:
    """By the archive of a prune; it is loaded where it comes from, too."""
    was = every_value.found(store, "r")
    (folder / "archive").mkdir()
    source.clock.advance(seconds=31 * DAY)
    assert store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder / "archive")).state == "done"
    assert store.workflows.runs.list().items == ()
    [file] = (folder / "archive").iterdir()
    loaded(target, file)
    store.maintenance.bundles.load(file)
    assert every_value.differing(was, every_value.found(store, "r")) == {}


def loaded(target: str, file: Path) -> None:
    with StateStore.open(target, migrate=True) as store:
        planned = store.maintenance.bundles.plan(file)
        assert store.maintenance.bundles.load(file).rows == planned.rows
        assert store.maintenance.bundles.load(file).rows == {}


#: The one that removes its source comes last.
MOVERS = (copied, restored, exported, archived)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_every_value_arrives_unchanged_by_every_mover(
    request: pytest.FixtureRequest, tmp_path: Path, one: str, other: str
) -> None:
    """maintenance OP-30, OP-45, OP-53, OP-60: whatever decimal context the caller has."""
    source: Database = request.getfixturevalue(f"{one}_database")
    store = source.open(migrate=True)
    every_value.define(store)
    every_value.attach(store, source)
    every_value.fill(store, "r")
    was = every_value.found(store, "r")
    for mover in MOVERS:
        with target_of(request, other, tmp_path / f"{mover.__name__}.db") as target, localcontext() as context:
            context.prec = 5
            mover(source, store, target, tmp_path)
            with StateStore.open(target, migrate=True) as arrived:
                every_value.define(arrived)
                assert (mover, every_value.differing(was, every_value.found(arrived, "r"))) == (mover, {})


@contextmanager
def target_of(request: pytest.FixtureRequest, name: str, file: Path) -> Iterator[str]:
    """The URL of a database in which there is nothing yet."""
    if name == "sqlite":
        yield str(file)
    else:
        with request.getfixturevalue("postgres_server").database() as url:
            yield url
