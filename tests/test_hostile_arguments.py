"""Every public method of every repository, called with what nobody would expect, on both databases at once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from support import refusals
from support.hostile import Call, Odd, calls, mailbox_methods, methods, unknown
from support.hostile_rows import KNOWN, Undone, fill, undo
from support.workflows.steps import started

from lastlight_state.errors import InvalidValue
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock, PostgresTemplate, SqliteTemplate


@pytest.fixture
def both(
    sqlite_template: SqliteTemplate, postgres_template: PostgresTemplate, tmp_path: Any, frozen_clock: FrozenClock
) -> Iterator[tuple[StateStore, StateStore]]:
    """A store on each database, with the same rows."""
    folders = tmp_path / "s", tmp_path / "p"
    for folder in folders:
        folder.mkdir()
    with (
        sqlite_template.fresh(folders[0], frozen_clock) as sqlite,
        postgres_template.fresh(folders[1], frozen_clock) as postgres,
    ):
        stores = sqlite.open(), postgres.open()
        for store in stores:
            fill(store)
        yield stores


def test_every_parameter_of_every_public_method_is_known(every_backend: StateStore, tmp_path: Path) -> None:
    """backends B-96: and so is every part of its argument groups."""
    boxes = Mailboxes(tmp_path)
    boxes.create("g", "s")
    fill(every_backend)
    verbs = [*methods(every_backend), *mailbox_methods(boxes, "g", "s")]
    strangers = [f"{path}({what})" for path, method in verbs for what in unknown(method, KNOWN)]
    assert not strangers, "\n".join(strangers)
    assert len(verbs) > 400


#: The share of calls that every run makes; `make soak` makes the others.
SEED = 11


def attack(stores: tuple[StateStore, StateStore], share: float, seed: int) -> tuple[int, list[Any]]:
    """How many calls were made, and what went wrong: another error than ours, unlike outcomes, something stored."""
    before = [contents(store) for store in stores]
    wrong: list[Any] = []
    made = 0
    for call in calls(methods(stores[0]), KNOWN, share=share, seed=seed):
        made += 1
        outcomes = [outcome(call, store) for store in stores]
        if outcomes[0] != outcomes[1] or outcomes[0][0].startswith("!"):
            wrong.append((call.path, call.attacked, f"{type(call.arguments.get(call.attacked)).__name__}", outcomes))
    wrong += [(name, "stored") for name, rows in before[0].items() if contents(stores[0])[name] != rows]
    wrong += [(name, "stored") for name, rows in before[1].items() if contents(stores[1])[name] != rows]
    return made, wrong


def outcome(call: Call, store: StateStore) -> tuple[str, str]:
    """What came of a call that is undone afterwards. One that failed must have undone itself."""
    found = ("", "")
    if call.path.startswith("maintenance."):
        with empty_folder():
            return call.on(store)
    try:
        with store.transaction() as tx:
            found = call.on(tx)
            undo()
    except Undone:
        pass
    if found[0] not in ("made", "MisuseError"):  # which some calls are inside a transaction, whatever they are given
        alone = call.on(store)  # each call a unit of its own: the same error, and nothing stored
        assert alone == found or alone[0] == "made", (call.path, found, alone)
    return found


@contextmanager
def empty_folder() -> Iterator[None]:
    """A working directory for what a call writes under a relative name; the same name each time."""
    place = Path(tempfile.gettempdir(), f"hostile-{os.getpid()}")
    place.mkdir()
    try:
        with chdir(place):
            yield
    finally:
        rmtree(place)


def contents(store: StateStore) -> dict[str, list[Any]]:
    """Every row of every table, as text."""
    found = {}
    with store.view() as view:
        connection = view._context.scope.unit.backend.connection(view._context.scope.unit)  # type: ignore[attr-defined]
        for table in METADATA.sorted_tables:
            if table.name == "maintenance_receipts":  # a prune that removed nothing, and had no wrong argument, says so
                continue
            found[table.name] = sorted(map(repr, connection.execute(table.select()).all()))
    return found


@pytest.mark.slow
def test_a_hostile_argument_is_the_librarys_own_error_and_the_same_on_both_databases(
    both: tuple[StateStore, StateStore],
) -> None:
    """backends B-86: only `StateError`, nothing stored, equal outcome and equal text."""
    made, wrong = attack(both, share=0.005, seed=SEED)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 400


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_tens_of_thousands_of_hostile_arguments(both: tuple[StateStore, StateStore], seed: int) -> None:
    """backends B-86."""
    made, wrong = attack(both, share=float(os.environ.get("SHARE", "0.25")), seed=seed)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 10_000


def test_each_argument_refuses_what_was_written_down(sqlite_database: Database) -> None:
    """backends B-86: by its name. What new arguments refuse is written down when the page is made again."""
    with sqlite_database.open() as store:
        fill(store)
        now = refusals.found(store, KNOWN)
    kept = {name: words for name, words in refusals.recorded().items() if name in now}
    assert len(kept) > 500
    changed = {name: (words, now[name]) for name, words in kept.items() if now[name] != words}
    assert not changed, f"the promise that a refusal keeps its error and text is broken by: {changed}"


def test_arguments_that_the_soak_found_are_refused_by_name(store: StateStore) -> None:
    """backends B-86: an object whose repr raises as an id and as a folder, and a folder that is not UTF-8."""
    run = started(store)
    odd: Any = Odd()
    with pytest.raises(InvalidValue, match="execution_id: expected text, got Odd"):
        store.workflows.loops.carry(run.id, "k", execution_id=odd, text="x")
    with pytest.raises(InvalidValue, match="archive: expected a path, got Odd"):
        store.maintenance.prune.run(PrunePolicy("sessions", archive=odd))
    with pytest.raises(InvalidValue, match="folder: must be UTF-8"):
        store.maintenance.backup.create("a\ud800b")
