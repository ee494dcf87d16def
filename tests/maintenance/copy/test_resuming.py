"""Copies that are cut between any two batches, and what must not be lost with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.filled_store import TRIGGER
from support.full_disk import largest_file

from lastlight_state import StateStore
from lastlight_state.errors import BackendUnavailable, ClaimLost, Conflict
from lastlight_state.maintenance import CopyPlan, CopyProgress, CopyReport
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.settings import Settings
from lastlight_state.testing import Database


class Report(BaseModel):
    title: str


def contents(report: CopyReport | CopyPlan) -> set[tuple[str, int, str]]:
    return {(table.name, table.rows, table.digest) for table in report.tables if table.name != "maintenance_receipts"}


def cut(progress: CopyProgress) -> None:
    """Interrupts the copy with its next batch of a table that has rows."""
    if progress.phase == "copied" and progress.rows:
        raise KeyboardInterrupt


def filled(database: Database) -> StateStore:
    """A store with a few rows of a few tables, so that it has few batches."""
    store = database.open()
    for n in range(3):
        store.workflows.runs.create(f"w-{n}", trigger=TRIGGER, phase="p")
    session = store.messaging.sessions.create(ConversationKey("p", "c", "u"))
    store.messaging.messages.append_many(session.id, [MessageDraft("user", text) for text in ("a", "b")])
    return store


def resumed(run: Callable[..., Any], resume: Callable[..., CopyReport], most: int) -> CopyReport:
    """Begin a copy, and go on with it batch by batch, each cut off with the one that it committed."""
    with pytest.raises(KeyboardInterrupt):
        run(on_progress=cut)
    for _ in range(most):
        try:
            return resume(on_progress=cut)
        except KeyboardInterrupt:
            continue
    raise AssertionError("the copy does not end")


def test_a_copy_that_is_cut_after_every_batch_is_equal_in_the_end(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-56: also with the one that says that a table has no more rows."""
    copy, there = filled(sqlite_database).maintenance.copy, tmp_path / "there.db"
    report = resumed(
        lambda **options: copy.run(there, migrate=True, batch_rows=2, **options),
        lambda **options: copy.resume(there, batch_rows=2, **options),
        most=60,
    )
    with StateStore.open(there) as copied:
        assert contents(copied.maintenance.copy.plan(tmp_path / "unmade.db")) == contents(report)
        assert contents(report) == contents(copy.plan(tmp_path / "unmade.db"))


def test_a_copy_that_somebody_else_took_over_ends_and_says_so(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-56: as a loss of its receipt, and not as one of the target."""
    there = tmp_path / "there.db"

    def taken(progress: CopyProgress) -> None:
        if progress.phase == "copied":
            with closing(sqlite3.connect(there)) as raw:
                raw.execute("UPDATE maintenance_receipts SET epoch = epoch + 1")
                raw.commit()

    with pytest.raises(ClaimLost):
        filled(sqlite_database).maintenance.copy.run(there, migrate=True, on_progress=taken)
    with closing(sqlite3.connect(there)) as raw:
        assert raw.execute("SELECT state FROM maintenance_receipts").fetchall() == [("running",)]


def test_a_copy_from_postgres_to_postgres_is_resumed(postgres_database: Database, tmp_path: Path) -> None:
    """maintenance OP-50, OP-56."""
    copy = filled(postgres_database).maintenance.copy
    batches = iter(range(12))

    def stop(progress: CopyProgress) -> None:
        if progress.phase == "copied" and next(batches, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy.run(postgres_database.url, schema="other", migrate=True, batch_rows=1, on_progress=stop)
    report = copy.resume(postgres_database.url, schema="other")
    assert contents(report) == contents(copy.plan(tmp_path / "unmade.db"))
    with postgres_database.open(schema="other") as copied:
        assert len(copied.workflows.runs.list().items) == 3


@pytest.mark.parametrize("emptied", [True, False], ids=["all pruned", "newest pruned"])
@pytest.mark.parametrize("direction", ["sqlite-sqlite", "sqlite-postgres", "postgres-sqlite"])
def test_numbers_of_pruned_messages_are_not_given_again(
    request: pytest.FixtureRequest, tmp_path: Path, direction: str, emptied: bool
) -> None:
    """maintenance OP-53, case 37: the last number that was given is copied, not the greatest that is there."""
    source, target = direction.split("-")
    database: Database = request.getfixturevalue(f"{source}_database")
    there = request.getfixturevalue("postgres_database").url if target == "postgres" else tmp_path / "there.db"
    store, raw = database.open(), database.raw()
    session = store.messaging.sessions.create(ConversationKey("p", "c", "u"))
    drafts = [MessageDraft("user", text) for text in ("a", "b")]
    given = [] if emptied else [one.message.id for one in store.messaging.messages.append_many(session.id, drafts)]
    if source == "sqlite":
        raw.execute("DELETE FROM sqlite_sequence")
        raw.execute("INSERT INTO sqlite_sequence VALUES ('messaging_messages', 70)")
    else:
        raw.execute("SELECT setval(pg_get_serial_sequence('messaging_messages', 'id'), 70)")
    store.maintenance.copy.run(there, migrate=True)
    with StateStore.open(there) as copied:
        [added] = copied.messaging.messages.append_many(session.id, drafts[:1])
    assert added.message.id == 71
    assert 70 not in given


def test_output_tables_that_were_left_in_the_target_are_compared(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-51: an empty one of the same columns is filled, another one is named."""
    store, there = sqlite_database.open(), tmp_path / "there.db"
    store.outputs.catalog.define("report", Report)
    StateStore.open(there).close()
    left = Database(str(there), "sqlite", sqlite_database.clock, tmp_path)
    left.raw().execute("CREATE TABLE report (run_id TEXT, title BLOB, theirs TEXT)")
    for attempt in (store.maintenance.copy.plan, store.maintenance.copy.run):
        with pytest.raises(Conflict, match=r"report\.theirs: is no column of the source") as refused:
            attempt(there)
        assert refused.value.code == "target_differs"
        assert len(refused.value.details["problems"]) == 3
    left.raw().execute("DROP TABLE report")
    [made] = sqlite_database.raw().execute("SELECT sql FROM sqlite_master WHERE name = 'report'").fetchone()
    left.raw().execute(made)
    left.close()
    assert "report" in {table.name for table in store.maintenance.copy.run(there).tables}


def test_a_full_disk_is_named_and_leaves_nothing_behind(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-45, OP-58: of a backup, whose disk it is; of a copy, the target, and it is resumed."""
    store = sqlite_database.open(settings=Settings(state_dir=tmp_path / "state", retry_seconds=0))
    folder, there = tmp_path / "night" / "backup", tmp_path / "there.db"
    StateStore.open(there).close()
    for n in range(40):
        store.workflows.overrides.put(f"w-{n}", enabled=False, by="ana", reason="x" * 2_000)
    with largest_file(there.stat().st_size + 32_768):
        with pytest.raises(BackendUnavailable, match="the copy cannot be written") as refused:
            store.maintenance.backup.create(folder)
        assert (refused.value.details["reason"], list(folder.parent.iterdir())) == ("no_room", [])
        with pytest.raises(BackendUnavailable, match=f"the target .*{there.name}"):
            store.maintenance.copy.run(there, batch_rows=1)
    sqlite_database.clock.advance(seconds=660)  # on the full disk it could not even say that it was interrupted
    assert contents(store.maintenance.copy.resume(there)) == contents(store.maintenance.copy.plan(tmp_path / "x.db"))
