"""What a prune removes is a bundle first, from which it comes back."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from psycopg.errors import LockNotAvailable
from support.between import before
from support.maintenance.attached import attach_without_a_column
from support.maintenance.rows import counts, insert
from support.maintenance.whole_runs import Report, whole_run
from support.stored_words import unguarded_words

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.errors import Conflict, CorruptData, InvalidValue, StateError
from lastlight_state.maintenance import CopiedTable, PrunePolicy
from lastlight_state.maintenance.prune import batches
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger

DAY = 86_400
_FUNCTION = "CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$"
_BEFORE = "CREATE TRIGGER theirs BEFORE INSERT ON report FOR EACH ROW EXECUTE FUNCTION theirs()"
#: Statements after which a row that is inserted into ``report`` gets another title.
_CHANGED_ON_INSERT = {
    "sqlite": [
        "CREATE TRIGGER theirs AFTER INSERT ON report BEGIN UPDATE report SET title = 'x' WHERE rowid = NEW.rowid; END"
    ],
    "postgresql": [_FUNCTION.format("NEW.title = 'x';"), _BEFORE],
}
#: Statements after which no row can be inserted into ``report``.
_REFUSED_ON_INSERT = {
    "sqlite": ["CREATE TRIGGER theirs BEFORE INSERT ON report BEGIN SELECT RAISE(ABORT, 'no more'); END"],
    "postgresql": [_FUNCTION.format("RAISE EXCEPTION 'no more';"), _BEFORE],
}
#: Tables that tell of the prune and of the load, and stay.
_OWN = {"maintenance_receipts", "tombstones"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the bundles go."""
    made = tmp_path / "archive"
    made.mkdir()
    return made


def test_each_run_that_is_removed_comes_back_from_its_bundle(fresh_database: Database, folder: Path) -> None:
    """maintenance OP-30: equal in every table; the tombstone has the digest."""
    database, store = fresh_database, fresh_database.open(migrate=True)
    store.outputs.catalog.define("report", Report)
    for key in ("one", "two/of: them"):
        whole_run(store, key)
    database.clock.advance(seconds=31 * DAY)
    was = _counts(database)
    receipt = store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, batch_rows=1, archive=folder))
    files = sorted(folder.iterdir())
    assert (receipt.state, receipt.counts["workflow_runs"], len(files)) == ("done", 2, 2)
    digests = {row[0] for row in database.raw().execute("SELECT digest FROM tombstones").fetchall()}
    assert {path.stem.rpartition("-")[2] for path in files} == {str(digest)[:16] for digest in digests}
    odd = sha256(b"two/of: them").hexdigest()[:32]
    assert {path.stem.rpartition("-")[0] for path in files} == {"run-one", f"run-{odd}"}
    loaded = [store.maintenance.bundles.load(file) for file in files]
    assert sum(sum(one.rows.values()) for one in loaded) == sum(receipt.counts.values())
    assert _counts(database) == was


def test_each_session_that_is_removed_comes_back_from_its_bundle(database: Database, folder: Path) -> None:
    """maintenance OP-30."""
    store = database.open()
    store.conversations.sessions.create(NewSession("talk", "name"))
    branch = store.conversations.branches.create("talk")
    store.conversations.branches.append(branch.id, [NewMessage("user", "hello")])
    was = store.conversations.branches.get(branch.id)
    database.clock.advance(seconds=31 * DAY)
    store.maintenance.prune.run(PrunePolicy("sessions", keep_n=0, archive=folder))
    assert store.conversations.sessions.find("talk") is None
    (file,) = folder.iterdir()
    store.maintenance.bundles.load(file)
    assert store.conversations.branches.get(branch.id) == was
    assert [one.message.content for one in store.conversations.branches.tail(branch.id)] == ["hello"]


def test_a_word_that_is_not_known_is_archived_and_comes_back(database: Database, folder: Path) -> None:
    """maintenance OP-30, OP-61: a later version stored it; a load must be told to take it."""
    store, raw = database.open(), database.raw()
    store.conversations.sessions.create(NewSession("talk", "name"))
    branch = store.conversations.branches.create("talk")
    with unguarded_words(database.name, raw.execute):
        raw.execute("UPDATE branches SET status = 'dreaming'")
    database.clock.advance(seconds=31 * DAY)
    store.maintenance.prune.run(PrunePolicy("sessions", keep_n=0, archive=folder))
    assert store.conversations.sessions.find("talk") is None
    (file,) = folder.iterdir()
    with pytest.raises(Conflict, match="dreaming"):
        store.maintenance.bundles.load(file)
    store.maintenance.bundles.load(file, allow_unknown_words=True)
    assert store.conversations.branches.get(branch.id).status == "dreaming"


def test_what_was_delivered_of_a_session_comes_back_from_its_bundle(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    """maintenance OP-30: equal row by row, acknowledged deliveries included, which go with the messages."""
    store = database.open()
    c = store.conversations
    c.sessions.create(NewSession("talk", "name"))
    branch = c.branches.create("talk", NewBranch(id="branch"))
    c.branches.append(branch.id, [NewMessage("user", "hello", id="m")])
    c.exchange.send(NewMessage("user", "hello", id="m"), to=["ana", "branch"])
    for owner in ("ana", "branch"):
        c.exchange.take(owner, reader="r")
        c.exchange.ack(owner, 0, reader="r")
    c.exchange.join("news", "branch")
    c.vectors.put("texts", [NewChunk("m", "hello", [1.0])])
    was = _digests(store, tmp_path)
    database.clock.advance(seconds=31 * DAY)
    receipt = store.maintenance.prune.run(PrunePolicy("sessions", keep_n=0, archive=folder))
    assert receipt.counts["exchange_deliveries"] == 2
    (file,) = folder.iterdir()
    store.maintenance.bundles.load(file)
    assert _digests(store, tmp_path) == was


def test_a_kill_between_the_archive_and_the_removal_loses_nothing(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-3, OP-30: the bundle is there, the run too; going on removes it, and finds its bundle."""
    store = _with_an_old_run(database)
    happened = before(monkeypatch, batches, "_remove_records", _killed)
    with pytest.raises(KeyboardInterrupt):
        store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert happened == ["_remove_records"]
    assert (len(list(folder.iterdir())), store.workflows.runs.get("old").id) == (1, "old")
    (receipt,) = store.receipts.list().items
    assert store.maintenance.prune.resume(receipt.id).counts["workflow_runs"] == 1
    assert len(list(folder.iterdir())) == 1


def test_a_run_that_gets_a_row_after_it_was_archived_stays(
    postgres_database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: another program's row; on SQLite nobody else writes in between."""
    store, raw = _with_an_old_run(postgres_database), postgres_database.raw()
    row = {"id": "late", "trigger_type": "t", "trigger_id": "t", "skill": "s", "workflow_run_id": "old"}
    row["started_at"] = str(postgres_database.clock.now())
    before(monkeypatch, batches, "_remove_records", lambda: insert(raw, "executions", row))
    with pytest.raises(Conflict) as caught:
        store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert (caught.value.code, store.workflows.runs.get("old").id) == ("changed_meanwhile", "old")


@pytest.mark.parametrize("change", ["an execution", "a message", "a delivery"])
def test_what_was_archived_is_not_changed_before_it_is_removed(
    postgres_database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """maintenance OP-30: a change in between waits until the record is gone."""
    store, raw = _with_an_old_run(postgres_database), postgres_database.raw()
    store.conversations.branches.append(_talk(store), [NewMessage("user", "hello", id="m")])
    postgres_database.clock.advance(seconds=31 * DAY)
    store.conversations.exchange.send(NewMessage("user", "other", id="o"), to="ana")
    sql = {
        "an execution": "UPDATE executions SET skill = 'changed' WHERE workflow_run_id = 'old'",
        "a message": "UPDATE messages SET role = 'changed' WHERE id = 'm'",
        "a delivery": "INSERT INTO exchange_deliveries (owner, ord, message_id, sender, delivered_at)"
        " VALUES ('ana', 1, 'm', 'x', now())",
    }[change]

    def act() -> None:
        raw.execute("SET lock_timeout = '100ms'")
        with pytest.raises(LockNotAvailable):
            raw.execute(sql)

    happened = before(monkeypatch, batches, "_remove_records", act)
    kind = "runs" if change == "an execution" else "sessions"
    receipt = store.maintenance.prune.run(PrunePolicy(kind, keep_n=0, archive=folder))
    assert (receipt.state, happened) == ("done", ["_remove_records"])


def test_a_file_in_the_place_of_an_archive_is_read_before_it_is_trusted(database: Database, folder: Path) -> None:
    """maintenance OP-30."""
    store = _with_an_old_run(database)
    policy = PrunePolicy("runs", keep_n=0, archive=folder)
    store.maintenance.prune.run(policy)
    (file,) = folder.iterdir()
    store.maintenance.bundles.load(file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(Conflict) as caught:
        store.maintenance.prune.run(policy)
    assert (caught.value.code, store.workflows.runs.get("old").id) == ("other_file", "old")
    file.write_bytes(whole)
    assert store.maintenance.prune.run(policy).counts["workflow_runs"] == 1


def test_an_archive_that_does_not_bring_back_every_cell_removes_nothing(fresh_database: Database, folder: Path) -> None:
    """maintenance OP-30: a trigger of another program changes what is inserted; the error names the cell."""
    store, raw = _with_an_old_run(fresh_database), fresh_database.raw()
    raw.execute("UPDATE report SET title = 'as it was'")
    for statement in _CHANGED_ON_INSERT[fresh_database.name]:
        raw.execute(statement)
    was = _counts(fresh_database)
    with pytest.raises(Conflict, match="column title, does not come back from the archive") as caught:
        store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    told = {name: caught.value.details[name] for name in ("table", "key", "column")}
    assert (caught.value.code, told) == (
        "archive_differs",
        {"table": "report", "key": "('old', 'n', 0)", "column": "title"},
    )
    assert (_counts(fresh_database), raw.execute("SELECT title FROM report").fetchone()[0]) == (was, "as it was")


def test_an_archive_that_the_database_refuses_removes_nothing(fresh_database: Database, folder: Path) -> None:
    """maintenance OP-30: the error of the load says which archive it was."""
    store, raw = _with_an_old_run(fresh_database), fresh_database.raw()
    for statement in _REFUSED_ON_INSERT[fresh_database.name]:
        raw.execute(statement)
    was = _counts(fresh_database)
    with pytest.raises(StateError) as caught:
        store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert any("so nothing was removed" in note for note in caught.value.__notes__)
    assert _counts(fresh_database) == was


def test_a_run_that_cannot_be_read_stays_and_hinders_no_other(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-30: Postgres keeps no text that is no JSON."""
    database = sqlite_database
    store = _with_an_old_run(database)
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="damaged"))
    store.workflows.runs.cancel("damaged", by="ana", reason="done")
    database.clock.advance(seconds=31 * DAY)
    database.raw().execute("UPDATE workflow_runs SET phase_history = 'x' WHERE id = 'damaged'")
    receipt = store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert (receipt.state, receipt.counts["workflow_runs"], len(list(folder.iterdir()))) == ("done", 1, 1)


def test_a_session_that_cannot_be_read_ends_the_prune(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-30: others may share its rows, so none of them goes without its bundle."""
    store = sqlite_database.open()
    for name in ("damaged", "sound"):
        store.conversations.sessions.create(NewSession(name, status="completed"))
    sqlite_database.clock.advance(seconds=40 * 86_400)
    sqlite_database.raw().execute("UPDATE sessions SET node_metadata = 'x' WHERE id = 'damaged'")
    with pytest.raises(CorruptData):
        store.maintenance.prune.run(PrunePolicy("sessions", keep_n=0, archive=folder))
    assert sqlite_database.raw().execute("SELECT count(*) FROM sessions").fetchone() == (2,)


def test_where_everything_must_stay_nothing_is_archived(database: Database, folder: Path) -> None:
    """maintenance OP-30."""
    store = database.open()
    store.conversations.sessions.create(NewSession("held", status="completed"))
    database.clock.advance(seconds=40 * DAY)
    database.raw().execute("UPDATE sessions SET hold_reason = 'x' WHERE id = 'held'")
    done = store.maintenance.prune.run(PrunePolicy("sessions", keep_n=0, archive=folder))
    assert (done.state, done.counts, list(folder.iterdir())) == ("done", {}, [])


def test_an_output_table_that_is_gone_hinders_no_archive(fresh_database: Database, folder: Path) -> None:
    """maintenance OP-30: it is registered still, and has nothing that could be lost."""
    store = fresh_database.open(migrate=True)
    store.outputs.catalog.define("report", Report)
    whole_run(store, "old")
    fresh_database.clock.advance(seconds=31 * DAY)
    fresh_database.raw().execute("DROP TABLE report")
    receipt = store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert (receipt.state, receipt.counts["workflow_runs"], len(list(folder.iterdir()))) == ("done", 1, 1)


def test_rows_that_a_bundle_would_not_hold_whole_are_not_removed(database: Database, folder: Path) -> None:
    """maintenance OP-30: an attached table has a column that nobody declared."""
    store, raw = _with_an_old_run(database), database.raw()
    attach_without_a_column(store, raw, "old")
    with pytest.raises(Conflict) as caught:
        store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder))
    assert (caught.value.code, store.workflows.runs.get("old").id) == ("unregistered_columns", "old")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["runs", "sessions"])
def test_rows_are_not_removed_of_which_another_programs_column_would_be_lost(
    fresh_database: Database, folder: Path, kind: str
) -> None:
    """maintenance OP-30: NULL in every row loses nothing."""
    store, raw = _with_an_old_run(fresh_database), fresh_database.raw()
    store.conversations.sessions.create(NewSession("old", status="running"))
    store.conversations.lifecycle.transition("old", "completed")
    fresh_database.clock.advance(seconds=31 * DAY)
    for table in ("workflow_runs", "sessions"):
        raw.execute(f"ALTER TABLE {table} ADD COLUMN theirs text")
        raw.execute(f"UPDATE {table} SET theirs = 'x'")
    policy = PrunePolicy(kind, keep_n=0, archive=folder)
    with pytest.raises(Conflict, match="theirs was added") as caught:
        store.maintenance.prune.run(policy)
    assert (caught.value.code, list(folder.iterdir())) == ("unregistered_columns", [])
    raw.execute(f"UPDATE {'workflow_runs' if kind == 'runs' else 'sessions'} SET theirs = NULL")
    assert store.maintenance.prune.run(policy).state == "done"
    assert len(list(folder.iterdir())) == 1


def test_an_archive_that_cannot_be_is_refused(database: Database, folder: Path) -> None:
    """maintenance OP-25, OP-30: before there is a receipt."""
    store = _with_an_old_run(database)
    policy = PrunePolicy("runs", keep_n=0, archive=folder)
    folders = (replace(policy, archive=one) for one in (folder / "none", "", "x" * 300))
    for wrong in (replace(policy, kind="fires"), *folders):
        with pytest.raises(InvalidValue, match="archive"):
            store.maintenance.prune.run(wrong)
    assert store.receipts.list().items == ()


def _with_an_old_run(database: Database) -> StateStore:
    store = database.open(migrate=True)
    store.outputs.catalog.define("report", Report)
    whole_run(store, "old")
    database.clock.advance(seconds=31 * DAY)
    return store


def _talk(store: StateStore) -> str:
    store.conversations.sessions.create(NewSession("talk", "name"))
    return store.conversations.branches.create("talk").id


def _killed() -> None:
    raise KeyboardInterrupt


def _digests(store: StateStore, folder: Path) -> dict[str, CopiedTable]:
    plan = store.maintenance.copy.plan(folder / "unmade.db")
    return {table.name: table for table in plan.tables if table.name not in _OWN}


def _counts(database: Database) -> dict[str, int]:
    return {name: rows for name, rows in counts(database, "report").items() if name not in _OWN}
