"""Mailboxes of another program are copied to ours, or adopted where they stand."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.cli.calls import lastlight_state
from support.mailbox.files import OLD_INBOUND, ids, send, sql
from support.maintenance import killed_imports
from support.maintenance.mailbox_trees import KEY, answer, attach, say, write_session
from support.maintenance.run_folders import bytes_of
from support.preloaded import run_program

from lastlight_state.errors import BackendUnavailable, Conflict
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox import Mailboxes, face
from lastlight_state.files.mailbox.folder import creation
from lastlight_state.maintenance.imports import mailbox_pieces, mailbox_sources, pieces
from lastlight_state.testing import Database

UNIT = "/".join(KEY)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of all groups of the other program."""
    return tmp_path / "program" / "data" / "v2-sessions"


def _codes(report: Any) -> dict[str, str]:
    return {one.unit: one.code for one in report.failures}


def test_a_session_is_copied_with_its_attachments_and_goes_on_here(store: Any, source: Path) -> None:
    """maintenance OP-87, OP-35, OP-37, case 33: the plan is the truth, the source is only read."""
    folder = write_session(source)
    attach(source / KEY[0], ".claude-shared/settings.json", b"{}")
    attach(source / KEY[0], "agent-runner-src/index.ts", b"")
    attach(folder, ".heartbeat", b"")
    attach(folder, "notes.md", b"")
    attach(source / KEY[0], "notes.md", b"")
    attach(source, "notes.md", b"")
    (folder / "agent").mkdir()
    attach(folder, "work/todo.md", b"")
    (folder / "linked").symlink_to(folder / "agent")
    before, imports = bytes_of(source), store.maintenance.imports
    found = {imports.detect(one) for one in (source, source.parent, source.parents[1], folder)}
    assert found == {"nanoclaw"}
    assert imports.plan(folder).units == {"imported": 1}
    plan = imports.plan(source.parents[1])
    assert (plan.units, plan.noticed) == ({"ignored": 1, "imported": 1}, {"other_files": 3})
    assert plan.rows == {"attachments": 2, "mailboxes": 1, "messages_in": 2, "messages_out": 1}
    assert not store.mailbox.root.exists()
    done = imports.run(source.parents[1])
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(source) == before
    here = store.mailbox.root.joinpath(*KEY)
    copied = bytes_of(here)
    for name in ("inbox/m-1/a.txt", "outbox/a-1/b.bin", ".heartbeat"):
        assert copied[name] == before[f"{UNIT}/{name}"]
    assert sorted(copied) == [".heartbeat", "inbound.db", "inbox/m-1/a.txt", "outbound.db", "outbox/a-1/b.bin"]
    modes = {oct(one.stat().st_mode & 0o777) for one in here.rglob("*") if one.is_file()}
    assert (modes, oct(here.stat().st_mode & 0o777)) == ({"0o600"}, "0o700")
    host, agent = store.mailbox.host(*KEY), store.mailbox.agent(*KEY)
    assert ids(agent.inbox.peek()) == ["m-1", "m-2"]
    assert ids(due.message for due in host.outbox.take_due()) == ["a-1"]
    assert (send(host).seq, host.verify()) == (6, [])
    again = imports.run(source)
    assert (again.units, again.rows, bytes_of(source)) == ({"ignored": 1, "unchanged": 1}, {}, before)


def test_a_mailbox_that_is_here_is_never_overwritten(every_backend: Any, source: Path) -> None:
    """maintenance OP-87, OP-36: neither one that was made here, nor a copy whose source went on."""
    store, folder = every_backend, write_session(source)
    mine = send(store.mailbox.create(*KEY))
    assert _codes(store.maintenance.imports.run(source)) == {UNIT: "already_exists"}
    assert ids(store.mailbox.host(*KEY).inbox.list().items) == [mine.id]
    store.mailbox.prune(*KEY, dry_run=False)
    assert store.maintenance.imports.run(source).units == {"imported": 1}
    later = send(store.mailbox.host(*KEY))
    say(folder, "m-3", 6)
    refused = store.maintenance.imports.run(source)
    assert (_codes(refused), store.maintenance.imports.plan(source).failures) == (
        {UNIT: "already_exists"},
        refused.failures,
    )
    assert "has changed since the import" in refused.failures[0].reason
    assert ids(store.mailbox.host(*KEY).inbox.list().items) == [later.id, "m-2", "m-1"]
    store.mailbox.prune(*KEY, dry_run=False)
    assert store.maintenance.imports.run(source).units == {"pruned": 1}
    assert store.maintenance.imports.run(source, revive=True).rows["messages_in"] == 3


def test_a_mailbox_that_is_here_and_cannot_be_read_is_left_as_it_is(every_backend: Any, source: Path) -> None:
    """maintenance OP-87: nobody can say that it was imported."""
    write_session(source)
    here = every_backend.mailbox.create(*KEY).folder / "inbound.db"
    here.write_bytes(b"no database" * 100)
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.failures[0].code) == ({"failed": 1}, "already_exists")
    assert here.read_bytes() == b"no database" * 100


def test_an_older_file_lacks_nothing_afterwards(every_backend: Any, source: Path) -> None:
    """maintenance OP-87: columns that came later are added to the copy, rows stay as they are."""
    folder = write_session(source, inbound=OLD_INBOUND)
    sql(folder / "outbound.db", "DROP TABLE session_state")
    sql(folder / "outbound.db", "CREATE TABLE session_state (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    before = bytes_of(source)
    assert every_backend.maintenance.imports.run(source).units == {"imported": 1}
    assert bytes_of(source) == before
    here = every_backend.mailbox.root.joinpath(*KEY)
    assert sql(here / "inbound.db", "SELECT id, seq, series_id, tries FROM messages_in ORDER BY seq") == [
        ("m-1", 2, "m-1", 0),
        ("m-2", 4, "m-2", 0),
    ]
    every_backend.mailbox.agent(*KEY).state.put("a", "b")


def test_a_file_of_an_agent_that_wrote_nothing_yet_gets_its_tables(every_backend: Any, source: Path) -> None:
    """maintenance OP-87."""
    folder = write_session(source)
    (folder / "outbound.db").write_bytes(b"")
    assert every_backend.maintenance.imports.run(source).units == {"imported": 1}
    every_backend.mailbox.agent(*KEY).state.put("a", "b")


def test_a_mailbox_of_another_store_is_copied_too(every_backend: Any, source: Path) -> None:
    """maintenance OP-87: also one that lacks what a later version of this library adds."""
    there = Mailboxes(source)
    first = send(there.create(*KEY), "first").seq
    sql(there.host(*KEY).folder / "inbound.db", "ALTER TABLE delivered DROP COLUMN error")
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"imported": 1}, {})
    assert (first, send(every_backend.mailbox.host(*KEY)).seq) == (2, 4)
    assert every_backend.mailbox.host(*KEY).inbox.get("first").seq == first


def test_a_mailbox_without_folders_of_attachments_is_copied(every_backend: Any, source: Path) -> None:
    """maintenance OP-87: they are made; that the time of an attachment changes there is no change of the mailbox."""
    folder = write_session(source)
    shutil.rmtree(folder / "outbox")
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.rows["attachments"], done.noticed) == ({"imported": 1}, 1, {})
    assert (every_backend.mailbox.root.joinpath(*KEY) / "outbox").is_dir()
    os.utime(folder / "inbox/m-1/a.txt", (2_000_000_000, 2_000_000_000))
    assert every_backend.maintenance.imports.run(source).units == {"unchanged": 1}


def test_numbers_of_the_other_side_and_what_is_never_read_are_counted(every_backend: Any, source: Path) -> None:
    """maintenance OP-87; mailbox MB-24: the message is kept, and sending goes on above it."""
    folder = write_session(source)
    say(folder, "odd", 7)
    answer(folder, "even", 8)
    sql(folder / "inbound.db", "ALTER TABLE messages_in ADD COLUMN theirs TEXT DEFAULT 'x'")
    sql(folder / "inbound.db", "CREATE TABLE theirs (a)")
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"imported": 1}, {"findings": 2, "other_columns": 1, "other_tables": 1})
    host = every_backend.mailbox.host(*KEY)
    assert {one.message_id for one in host.verify()} == {"odd", "even"}
    assert sql(host.folder / "inbound.db", "SELECT DISTINCT theirs FROM messages_in") == [("x",)]
    assert send(host).seq == 10


def test_a_session_in_the_mailbox_root_is_adopted_where_it_stands(store: Any) -> None:
    """maintenance OP-87; mailbox MB-12: it goes on there, and is not imported again."""
    folder = write_session(store.mailbox.root, inbound=OLD_INBOUND)
    (folder / "outbound.db").unlink()
    imports, before = store.maintenance.imports, bytes_of(folder)
    plan = imports.plan(store.mailbox.root)
    assert (plan.units, plan.rows, bytes_of(folder)) == ({"imported": 1}, {"mailboxes": 1}, before)
    assert imports.run(store.mailbox.root).units == {"imported": 1}
    assert sql(folder / "inbound.db", "SELECT series_id FROM messages_in WHERE id = 'm-1'") == [("m-1",)]
    assert (folder / "outbound.db").is_file()
    assert ids([send(store.mailbox.host(*KEY), "mine")]) == ["mine"]
    assert imports.run(store.mailbox.root).units == {"unchanged": 1}
    (folder / "outbound.db").unlink()
    assert (imports.run(store.mailbox.root).units, (folder / "outbound.db").is_file()) == ({"imported": 1}, True)
    store.mailbox.create(KEY[0], "made-here")
    assert imports.run(store.mailbox.root).units == {"imported": 1, "unchanged": 1}
    assert imports.run(store.mailbox.root).units == {"unchanged": 2}


TORN_INDEX = """
CREATE INDEX i ON messages_in (kind) WHERE kind = 'x';
PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql = 'CREATE INDEX i ON messages_in (kind)' WHERE name = 'i';
"""


@pytest.mark.parametrize("in_place", [False, True])
def test_files_that_cannot_be_used_fail_alone(every_backend: Any, source: Path, *, in_place: bool) -> None:
    """maintenance OP-87, OP-35: each is named with its reason, nothing of it is here, and it keeps its bytes."""
    root = every_backend.mailbox.root if in_place else source
    write_session(root)
    changes = {
        "no-column": ("inbound.db", "ALTER TABLE messages_in RENAME COLUMN content TO body"),
        "lacks-column": ("inbound.db", "ALTER TABLE messages_in DROP COLUMN content"),
        "no-table": ("inbound.db", "ALTER TABLE messages_in RENAME TO messages"),
        "other-key": ("outbound.db", "DROP TABLE session_state; CREATE TABLE session_state (key TEXT, value TEXT)"),
        "trigger": ("inbound.db", "CREATE TRIGGER t AFTER INSERT ON messages_in BEGIN DELETE FROM delivered; END"),
        "index": ("inbound.db", TORN_INDEX),
        "view": ("outbound.db", "DROP TABLE processing_ack; CREATE VIEW processing_ack AS SELECT 1 AS message_id"),
    }
    for session, (name, statements) in changes.items():
        with closing(sqlite3.connect(write_session(root, "g", session) / name)) as connection:
            connection.executescript(statements)
    (write_session(root, "g", "text") / "outbound.db").write_bytes(b"no database" * 100)
    torn = write_session(root, "g", "torn") / "inbound.db"
    torn.write_bytes(torn.read_bytes()[:8192] + b"\xff" * (torn.stat().st_size - 8192))
    before = bytes_of(root)
    plan = every_backend.maintenance.imports.plan(root)
    done = every_backend.maintenance.imports.run(root)
    assert (done.units, done.failures) == ({"failed": 9, "imported": 1}, plan.failures)
    codes = {f"g/{session}": "invalid_value" for session in changes}
    assert _codes(done) == codes | dict.fromkeys(
        ("g/index", "g/text", "g/torn", "g/trigger", "g/view"), "damaged_source"
    )
    assert {name: one for name, one in bytes_of(root).items() if name.startswith("g/")} == {
        name: one for name, one in before.items() if name.startswith("g/")
    }
    if not in_place:
        assert [one.name for one in every_backend.mailbox.root.iterdir()] == [KEY[0]]


def test_unsafe_names_and_links_are_refused_or_left(every_backend: Any, source: Path, tmp_path: Path) -> None:
    """maintenance OP-87, OP-35: nothing is read or written through a link, and an agent's link holds up no message."""
    good, outside = write_session(source), attach(tmp_path, "outside/secret", b"secret")
    write_session(source, "g", "a b")
    write_session(source, "g", "x" * 200)
    (source / "g" / "linked").symlink_to(good)
    (source / "linked").symlink_to(source / KEY[0])
    for name in ("inbound.db", "outbound.db"):
        file = write_session(source, "g", name.removesuffix(".db")) / name
        file.symlink_to(file.rename(tmp_path / name))
    for box in ("inbox", "outbox"):
        folder = write_session(source, "g", box) / box
        folder.symlink_to(folder.rename(tmp_path / box))
    os.mkfifo(write_session(source, "g", "fifo") / "pipe")
    (source / "g" / "fifo" / "outbound.db").unlink()
    os.mkfifo(source / "g" / "fifo" / "outbound.db")
    (good / "outbox/a-1/link").symlink_to(outside)
    (good / "outbox/a-2").symlink_to(outside.parent)
    (good / "outbox/loose").write_bytes(b"")
    attach(good, "outbox/a-1/inner/deep", b"")
    os.mkfifo(good / "inbox/m-1/pipe")
    attach(good, os.fsdecode(b"inbox/m-1/\xff"), b"bytes")
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"failed": 9, "imported": 1}, {"other_files": 5})
    assert set(_codes(done).values()) == {"unsafe_path"}
    assert {"linked", "g/linked", "g/a b"} < _codes(done).keys()
    assert every_backend.maintenance.imports.plan(source).failures == done.failures
    here = every_backend.mailbox.root.joinpath(*KEY)
    copied = sorted(os.fsencode(one.relative_to(here)) for one in here.glob("*box/*/*"))
    assert copied == [b"inbox/m-1/a.txt", b"inbox/m-1/\xff", b"outbox/a-1/b.bin"]


def test_a_group_link_in_the_mailbox_root_is_not_written_through(
    every_backend: Any, source: Path, tmp_path: Path
) -> None:
    """maintenance OP-87; mailbox MB-02."""
    write_session(source)
    (tmp_path / "elsewhere").mkdir()
    every_backend.mailbox.root.mkdir(parents=True)
    (every_backend.mailbox.root / KEY[0]).symlink_to(tmp_path / "elsewhere")
    assert _codes(every_backend.maintenance.imports.run(source)) == {UNIT: "unsafe_path"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


DYING = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("PRAGMA cache_spill = 1")
connection.execute("BEGIN IMMEDIATE")
for n in range(200):
    connection.execute(
        "INSERT INTO messages_in (id, kind, timestamp, content) VALUES (?, 'chat', '', ?)", (str(n), "x" * 9000)
    )
os._exit(9)
"""


def test_what_a_dead_writer_left_is_not_imported_and_stays(every_backend: Any, source: Path) -> None:
    """maintenance OP-87; mailbox MB-73: only what was committed, read from a private copy."""
    folder = write_session(source)
    run_program([sys.executable, "-c", DYING, folder / "inbound.db"], check=False)
    assert (folder / "inbound.db-journal").stat().st_size > 0
    before = bytes_of(source)
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.rows["messages_in"], bytes_of(source)) == ({"imported": 1}, 2, before)
    assert ids(every_backend.mailbox.host(*KEY).inbox.list().items) == ["m-2", "m-1"]


def test_what_stands_in_a_log_only_is_imported(every_backend: Any, source: Path) -> None:
    """maintenance OP-87: of a file with a write-ahead log that somebody has open; the copy has none."""
    folder = write_session(source)
    with closing(sqlite3.connect(folder / "outbound.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO messages_out (id, seq, timestamp, kind, content) VALUES ('a-2', 5, '', 'chat', '')")
        before = bytes_of(source)
        done = every_backend.maintenance.imports.run(source)
        assert (done.units, done.rows["messages_out"]) == ({"imported": 1}, 2)
        shared = f"{UNIT}/outbound.db-shm"  # where readers note themselves
        assert {**bytes_of(source), shared: before[shared]} == before
    here = every_backend.mailbox.root.joinpath(*KEY) / "outbound.db"
    assert (here.read_bytes()[18:20], sql(here, "SELECT count(*) FROM messages_out")) == (b"\1\1", [(2,)])


def test_a_source_that_is_written_meanwhile_is_refused(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-87: a copy is of what was looked at; of one that differs nothing is left."""
    folder = write_session(source)
    changes = [
        lambda: say(folder, "m-9", 20),
        lambda: answer(folder, "a-9", 21),
        lambda: attach(folder, "inbox/m-1/a.txt", b"other"),
    ]
    for change in changes:
        with monkeypatch.context() as patched:
            before(patched, creation, "appear", change)
            assert _codes(every_backend.maintenance.imports.run(source)) == {UNIT: "damaged_source"}
        assert list((every_backend.mailbox.root / KEY[0]).iterdir()) == []
    with monkeypatch.context() as patched:
        before(patched, mailbox_sources, "_sum", lambda: say(folder, "m-11", 24))
        assert _codes(every_backend.maintenance.imports.plan(source)) == {UNIT: "damaged_source"}
    assert every_backend.maintenance.imports.run(source).units == {"imported": 1}


def test_a_mailbox_that_is_made_here_meanwhile_stays(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-87, OP-36."""
    write_session(source)
    copy, store = mailbox_pieces.Attachments.copy, every_backend

    def later(self: Any, *given: Any) -> None:
        copy(self, *given)
        send(store.mailbox.create(*KEY), "mine")

    monkeypatch.setattr(mailbox_pieces.Attachments, "copy", later)
    assert _codes(store.maintenance.imports.run(source)) == {UNIT: "already_exists"}
    assert ids(store.mailbox.host(*KEY).inbox.list().items) == ["mine"]


def test_a_copy_that_a_kill_left_before_its_note_is_known(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35, OP-87, case 34: also after it was used, it counts as imported and is left as it is."""
    store = every_backend
    write_session(source)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pieces, "note", killed)
        with pytest.raises(KeyboardInterrupt):
            store.maintenance.imports.run(source)
    assert [one.state for one in store.receipts.list()] == ["interrupted"]
    later = send(store.mailbox.host(*KEY))
    done = store.maintenance.imports.run(source)
    assert (done.units, done.rows, done.noticed) == ({"imported": 1}, {}, {"kept": 1})
    assert ids(store.mailbox.host(*KEY).inbox.list().items) == [later.id, "m-2", "m-1"]
    assert store.maintenance.imports.run(source).units == {"unchanged": 1}


@pytest.mark.parametrize(("where", "seen"), [("copy", 1), ("note", 2)])
def test_an_import_that_is_killed_leaves_whole_mailboxes_and_goes_on(
    fresh_database: Database, source: Path, where: str, seen: int
) -> None:
    """maintenance OP-35, OP-87, case 34: half a copy is never a mailbox, and a whole one is known."""
    for session in ("s1", "s2", "s3"):
        write_session(source, KEY[0], session)
    words = [killed_imports.__file__, fresh_database.url, str(source), "2", where]
    settings = {**os.environ, "LASTLIGHT_STATE_STATE_DIR": str(fresh_database.state_dir)}
    died = run_program([sys.executable, "-W", "error", *words], env=settings, capture_output=True, check=False)
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    store = fresh_database.open()
    assert len(store.mailbox.list().items) == seen
    fresh_database.clock.set(datetime.now(UTC) + timedelta(minutes=61))
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"imported": 2, "unchanged": 1}, {"kept": 1} if where == "note" else {})
    group = store.mailbox.root / KEY[0]
    assert sorted(one.name for one in group.iterdir()) == ["s1", "s2", "s3"]
    assert len(list(group.glob("*/*box/*/*"))) == 6


def test_half_a_copy_is_never_seen_and_a_full_disk_ends_the_import(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-87: the same call goes on later."""
    write_session(source)
    seen: list[Any] = []

    def full(path: Path) -> None:
        seen.append(every_backend.mailbox.list().items)
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(files, "sync_directory", full)
        with pytest.raises(BackendUnavailable, match="No space left"):
            every_backend.maintenance.imports.run(source)
    assert (seen, list((every_backend.mailbox.root / KEY[0]).iterdir())) == ([()], [])
    assert every_backend.maintenance.imports.run(source).units == {"imported": 1}


def test_copies_have_the_modes_of_the_setting_and_what_a_kill_left_is_removed(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-87; mailbox MB-03, MB-05."""
    write_session(source)
    left = every_backend.mailbox.root / KEY[0] / ".new-left"
    left.mkdir(parents=True)
    os.utime(left, (1_000_000_000, 1_000_000_000))
    monkeypatch.setitem(face.MODES, "private", face.MODES["group"])
    assert every_backend.maintenance.imports.run(source).units == {"imported": 1}
    here = every_backend.mailbox.root.joinpath(*KEY)
    assert list(here.parent.iterdir()) == [here]
    modes = {(one.is_dir(), oct(one.stat().st_mode & 0o777)) for one in (here, *here.rglob("*"))}
    assert modes == {(True, "0o770"), (False, "0o660")}


def test_a_group_that_may_not_be_read_fails_alone(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35, OP-87."""
    write_session(source)
    write_session(source, "locked")
    listed = Path.iterdir

    def refusing(path: Path) -> Any:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, _codes(done)) == ({"failed": 1, "imported": 1}, {"locked": "os_error"})


@pytest.mark.parametrize("call", ["listable", "opened_file"])
def test_attachments_that_cannot_be_read_fail_their_session_alone(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """maintenance OP-35, OP-87: they are not counted as what is no file."""
    for name in ("good", "bad"):
        attach(write_session(source, "g", name), "inbox/m-1/notes.txt", b"Buy milk.")
    real = getattr(files, call)

    def failing(path: Path, *given: Any, **named: Any) -> Any:
        if "bad" in path.parts and "inbox" in path.parts:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *given, **named)

    monkeypatch.setattr(files, call, failing)
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, _codes(done)) == ({"failed": 1, "imported": 1}, {"g/bad": "os_error"})


def test_a_folder_without_sessions_is_no_source(every_backend: Any, tmp_path: Path) -> None:
    """maintenance OP-87, OP-35."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(Conflict, match=r"has no folder with inbound\.db"):
        every_backend.maintenance.imports.plan(tmp_path, kind="nanoclaw")


def test_the_command_imports_mailboxes(database: Database, source: Path) -> None:
    """maintenance OP-72, OP-87."""
    database.open()
    write_session(source)
    where = ("--url", database.url, "--state-dir", database.state_dir)
    told = lastlight_state("import", source, "--kind", "nanoclaw", *where, "--json")
    assert (told.code, told.data["kind"], told.data["rows"]["mailboxes"]) == (0, "nanoclaw", 1)
