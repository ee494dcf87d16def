"""The home of another program becomes run logs and session states, each file whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.maintenance.homes import DAY, begin, said, state, write_indexed, write_log, write_state
from support.maintenance.run_folders import bytes_of
from support.run_log.logs import NOW, OTHER_RUN, OTHER_SESSION, RUN, SESSION, ending, event, head, id_of

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable, Conflict
from lastlight_state.files.run_log import SessionState, storage
from lastlight_state.files.run_log.states import files
from lastlight_state.maintenance.imports import foreign, run_logs
from lastlight_state.testing import Database

THIRD = "55555555-5555-4555-8555-555555555555"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the other program."""
    (tmp_path / "program").mkdir()
    return tmp_path / "program"


def _codes(report: Any) -> dict[str, str]:
    return {one.unit: one.code for one in report.failures}


def test_a_home_becomes_run_logs_and_session_states(store: Any, home: Path) -> None:
    """maintenance OP-83, OP-37, case 33; run-log RL-83: the plan is the truth, the source is only read."""
    log = write_log(home, begin(), ending())
    os.utime(log, (1_000_000_000, 1_000_000_000))
    write_state(home, state("old"))
    write_state(home, state("alone", session_id=OTHER_SESSION), OTHER_SESSION)
    write_indexed(home, SESSION, '{"role":"user","content":"new"}\n{"role":', run_id=RUN, meta_json='{"a":1}')
    write_indexed(home, THIRD, None, invoke_seq=0)
    before, imports = bytes_of(home), store.maintenance.imports
    (home / "empty").mkdir()
    assert (imports.detect(home), imports.detect(home / "sessions")) == ("codelia", "codelia")
    with pytest.raises(Conflict, match="no known source"):
        imports.detect(home / "empty")
    plan = imports.plan(home)
    assert not store.run_log.root.joinpath("sessions").exists()
    assert (plan.units, plan.rows) == ({"ignored": 1, "imported": 4}, {"run_logs": 1, "session_states": 3})
    assert plan.noticed == {"message_torn": 1}
    done = imports.run(home)
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(home) == before
    copied = store.run_log.root.joinpath("sessions", *DAY, log.name)
    assert (copied.read_bytes(), copied.stat().st_mtime) == (log.read_bytes(), 1_000_000_000)
    assert store.run_log.runs.get(RUN).run_id == RUN
    states = store.run_log.states
    assert states.get(SESSION).messages == (said("new"),)
    assert (states.get(SESSION).run_id, states.get(SESSION).meta) == (RUN, {"a": 1})
    assert states.get(OTHER_SESSION).messages == (said("alone"),)
    assert (states.get(THIRD).messages, states.get(THIRD).invoke_seq) == ((), 0)
    listed = states.list().items[0]
    assert (store.run_log.root / "sessions" / "state" / f"{listed.session_id}.json").stat().st_mtime == NOW.timestamp()
    again = imports.run(home)
    assert (again.units, again.rows) == ({"ignored": 1, "unchanged": 4}, {})


def test_a_home_may_be_called_like_the_folder_in_it(store: Any, home: Path) -> None:
    """maintenance OP-83."""
    write_log(home / "sessions", begin())
    assert store.maintenance.imports.run(home / "sessions").units == {"imported": 1}


def test_a_state_that_was_removed_here_stays_away_until_it_is_asked_for(store: Any, home: Path) -> None:
    """maintenance OP-36, OP-83, M-121."""
    write_state(home, state("one"))
    store.maintenance.imports.run(home)
    store.run_log.states.clear(SESSION)
    assert store.maintenance.imports.run(home).units == {"pruned": 1}
    assert store.maintenance.imports.run(home, revive=True).units == {"imported": 1}
    assert store.run_log.states.get(SESSION).messages == (said("one"),)


def test_a_log_that_is_packed_here_stays_where_its_source_has_lost_lines(store: Any, home: Path) -> None:
    """maintenance OP-36, OP-83: a packed log is smaller than its lines."""
    log = write_log(home, begin(), ending())
    whole = log.read_bytes()
    store.maintenance.imports.run(home)
    store.run_log.runs.pack(RUN)
    log.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    done = store.maintenance.imports.run(home)
    assert (done.units, done.failures) == ({"unchanged": 1}, ())
    [packed] = store.run_log.root.rglob(f"{RUN}.jsonl*")
    assert packed.name != log.name


def test_what_has_grown_is_continued_and_what_went_on_here_is_kept(store: Any, home: Path) -> None:
    """maintenance OP-36, OP-83; run-log RL-83: newer snapshots replace, older ones are refused."""
    imports, states = store.maintenance.imports, store.run_log.states
    log = write_log(home, begin())
    write_state(home, state("one", invoke_seq=1))
    imports.run(home)
    with log.open("ab") as file:
        file.write(dump_line(event(1)) + b'{"type":"agent')
    write_state(home, state("one", "two", at="2026-02-03T13:00:00.000Z", invoke_seq=2))
    plan = imports.plan(home)
    assert (plan.units, imports.run(home).units) == ({"grown": 2}, {"grown": 2})
    copied = store.run_log.root.joinpath("sessions", *DAY, log.name)
    assert copied.read_bytes() == log.read_bytes()
    mine = states.put(SessionState.model_validate(state("mine", at="2026-02-03T14:00:00.000Z", invoke_seq=3)))
    with copied.open("ab") as file:
        file.write(b'.event"}\n')
    assert imports.run(home).units == {"unchanged": 2}
    write_state(home, state("three", at="2026-02-03T13:30:00.000Z", invoke_seq=3))
    log.write_bytes(dump_line({**head(), "meta": {"other": 1}}))
    assert _codes(imports.run(home)) == {
        f"2026/02/03/{RUN}.jsonl": "already_exists",
        f"state/{SESSION}": "stale_version",
    }
    assert states.get(SESSION) == mine


def test_a_state_that_was_continued_here_is_refused_and_stays(store: Any, home: Path) -> None:
    """maintenance OP-36; run-log RL-83: also where the source has a later one."""
    imports, states = store.maintenance.imports, store.run_log.states
    write_state(home, state("one"))
    imports.run(home)
    more = state("one", "mine", at="2026-02-03T13:00:00.000Z")
    mine = states.put(SessionState.model_validate(more))
    write_state(home, state("one", "theirs", at="2026-02-03T14:00:00.000Z"))
    assert _codes(imports.plan(home)) == _codes(imports.run(home)) == {f"state/{SESSION}": "already_exists"}
    assert states.get(SESSION) == mine


@pytest.mark.parametrize("mine", [{"meta": {"root": "/here"}}, {"title": "named here"}])
def test_a_state_of_which_another_field_was_changed_here_is_refused_and_stays(
    store: Any, home: Path, mine: dict[str, Any]
) -> None:
    """maintenance OP-36, OP-83: also where its messages are the first of those of the source."""
    imports, states = store.maintenance.imports, store.run_log.states
    write_state(home, state("one", meta={"root": "/there"}))
    imports.run(home)
    changed = states.update(SESSION, lambda one: SessionState.model_validate({**one.to_json(), **mine}))
    write_state(home, state("one", "two", at="2027-02-03T14:00:00.000Z", meta={"root": "/there"}))
    assert _codes(imports.plan(home)) == _codes(imports.run(home)) == {f"state/{SESSION}": "already_exists"}
    assert states.get(SESSION) == changed


def test_a_state_that_a_killed_import_put_follows_its_source(store: Any, home: Path) -> None:
    """maintenance OP-35, OP-36, case 34: it is not in the ledger; each save there changes its run and invocation."""
    more: dict[str, Any] = {"meta": {"root": "/there"}, "title": "theirs"}
    store.run_log.states.put(SessionState.model_validate(state("one", run_id=RUN, invoke_seq=1, **more)))
    later: dict[str, Any] = {"run_id": OTHER_RUN, "invoke_seq": 2, "at": "2026-02-03T14:00:00.000Z"}
    write_state(home, state("one", "two", **later, **more))
    assert store.maintenance.imports.run(home).units == {"grown": 1}
    assert store.run_log.states.get(SESSION).run_id == OTHER_RUN


def test_a_state_that_nobody_continued_here_follows_its_source(store: Any, home: Path) -> None:
    """maintenance OP-36; run-log RL-83: also where the source has put other messages in their place."""
    imports = store.maintenance.imports
    write_state(home, state("one", "two"))
    imports.run(home)
    write_state(home, state("in short", at="2026-02-03T14:00:00.000Z"))
    assert imports.run(home).units == {"grown": 1}
    assert store.run_log.states.get(SESSION).messages == (said("in short"),)


def test_an_indexed_state_without_a_time_is_of_when_its_messages_were_changed(store: Any, home: Path) -> None:
    """maintenance OP-36; run-log RL-83: so that a second import finds it unchanged."""
    write_indexed(home, SESSION, '{"role":"user","content":"a"}\n', updated_at="")
    write_indexed(home, OTHER_SESSION, None, updated_at="")
    index = home / "sessions" / "state.db"
    with closing(sqlite3.connect(index)) as raw, raw:
        raw.execute("CREATE TABLE loose AS SELECT * FROM session_state")
        raw.execute("DROP TABLE session_state")
        raw.execute("UPDATE loose SET updated_at = NULL")
        raw.execute("ALTER TABLE loose RENAME TO session_state")
    for file, at in ((home / "sessions" / "messages" / f"{SESSION}.jsonl", 1_000_000_000), (index, 1_100_000_000)):
        os.utime(file, (at, at))
    imports, states = store.maintenance.imports, store.run_log.states
    first, second = imports.run(home), imports.run(home)
    assert (first.units, first.noticed) == ({"imported": 2}, {"updated_at_approximate": 2})
    assert second.units == {"unchanged": 2}
    assert states.get(SESSION).updated_at.timestamp() == 1_000_000_000
    assert states.get(OTHER_SESSION).updated_at.timestamp() == 1_100_000_000


def test_hostile_names_links_and_contents_are_refused(store: Any, home: Path) -> None:
    """maintenance OP-35, OP-38, OP-83: what is refused is named, and the others go on."""
    outside = home.parent / "outside"
    outside.write_bytes(dump_line(head(OTHER_RUN)))
    good = write_log(home, begin())
    (good.parent / f"{OTHER_RUN}.jsonl").symlink_to(outside)
    write_log(home, name="short.jsonl")
    write_log(home, run_id=RUN, name=f"{THIRD}.jsonl")
    (good.parent / "..jsonl").write_bytes(b"")
    write_state(home, state(session_id=OTHER_SESSION))
    write_state(home, "{", OTHER_SESSION)
    write_state(home, state(session_id="../up"), "up")
    (home / "sessions" / "state" / f"{THIRD}.json").symlink_to(outside)
    (home / "sessions" / "state" / f"{id_of(1)}.json").mkdir()
    os.mkfifo(good.parent / f"{id_of(2)}.jsonl")
    write_indexed(home, "../../up", None)
    write_indexed(home, RUN, '{"role":\n{"role":"user","content":"x"}\n')
    write_indexed(home, OTHER_RUN, None, meta_json="[")
    (home / "sessions" / "messages" / f"{THIRD[:-1]}6.jsonl").symlink_to(outside)
    write_indexed(home, f"{THIRD[:-1]}6", None)
    done = store.maintenance.imports.run(home)
    assert done.units == {"failed": 14, "imported": 1}
    day = "/".join(DAY)
    assert _codes(done) == {
        f"{day}/{OTHER_RUN}.jsonl": "unsafe_path",
        f"{day}/{THIRD}.jsonl": "invalid_value",
        f"{day}/short.jsonl": "invalid_value",
        f"{day}/..jsonl": "unsafe_path",
        f"{day}/{id_of(2)}.jsonl": "not_found",
        f"state/{id_of(1)}": "os_error",
        f"state/{SESSION}": "corrupt_data",
        f"state/{OTHER_SESSION}": "invalid_value",
        "state/up": "invalid_value",
        f"state/{THIRD}": "unsafe_path",
        "state/../../up": "unsafe_path",
        f"state/{RUN}": "invalid_value",
        f"state/{OTHER_RUN}": "invalid_value",
        f"state/{THIRD[:-1]}6": "unsafe_path",
    }
    assert [one.run_id for one in store.run_log.runs.list().items] == [RUN]


@pytest.mark.parametrize("line", [b'{"type":"hea\n', b"[]\n"])
def test_an_index_behind_a_link_and_a_damaged_first_line(store: Any, home: Path, line: bytes) -> None:
    """maintenance OP-83: a log is copied with its damage, and an index is never read through a link."""
    index = write_indexed(home, SESSION, None)
    moved = index.rename(home.parent / "elsewhere.db")
    index.symlink_to(moved)
    write_log(home).write_bytes(line + b'{"type":"run.end"}\n')
    done = store.maintenance.imports.run(home)
    assert (done.units, _codes(done)) == ({"failed": 1, "imported": 1}, {"state.db": "unsafe_path"})


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ('{"role":\n{"role":"user","content":"x"}', {"failed": 1}),
        ('{"role":"user","content":"x"}\n{"role":\n', {"failed": 1}),
        ('{"role":"user","content":"x"}\n{"role":', {"imported": 1}),
        ('{"role":', {"imported": 1}),
    ],
)
def test_only_what_a_writer_did_not_end_is_left_out(store: Any, home: Path, text: str, units: dict[str, int]) -> None:
    """maintenance OP-83: a line in the middle, and one that ended, are damage."""
    write_indexed(home, SESSION, text)
    done = store.maintenance.imports.run(home)
    assert (done.units, done.noticed) == (units, {"message_torn": 1} if "imported" in units else {})


def test_a_lenient_import_keeps_refused_numbers_as_words(store: Any, home: Path) -> None:
    """maintenance OP-38; a snapshot without a time has that of its file."""
    text = json.dumps({"session_id": SESSION, "messages": [said("?")]}).replace('"?"', "NaN")
    os.utime(write_state(home, text), (1_000_000_000, 1_000_000_000))
    imports = store.maintenance.imports
    assert _codes(imports.plan(home)) == {f"state/{SESSION}": "invalid_value"}
    assert imports.run(home, lenient=True).noticed == {"adapted": 1, "updated_at_approximate": 1}
    found = store.run_log.states.get(SESSION)
    assert (found.messages, found.updated_at.timestamp()) == ((said("NaN"),), 1_000_000_000)


def test_a_snapshot_past_the_limit_fails(store: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-38."""
    write_state(home, state("long"))
    monkeypatch.setattr(files, "MAX_BYTES", 50)
    assert _codes(store.maintenance.imports.plan(home)) == {f"state/{SESSION}": "payload_too_large"}


def test_a_run_that_is_written_here_packed_or_changed_meanwhile_is_left_alone(
    store: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35, OP-83."""
    log, imports = write_log(home, begin(), ending()), store.maintenance.imports
    held = storage.try_acquire(store.run_log.root / "sessions" / ".locks" / RUN)
    assert held is not None
    with held:
        assert _codes(imports.run(home)) == {f"2026/02/03/{RUN}.jsonl": "conflict"}
    monkeypatch.setattr(foreign, "copy", _other_bytes(foreign.copy, log))
    assert _codes(imports.run(home)) == {f"2026/02/03/{RUN}.jsonl": "damaged_source"}
    assert not list(store.run_log.root.rglob(f"*{RUN}.jsonl*"))
    monkeypatch.undo()
    assert imports.run(home).units == {"imported": 1}
    store.run_log.runs.pack(RUN)
    again = imports.run(home)
    assert (again.units, again.failures) == ({"unchanged": 1}, ())
    with log.open("ab") as file:
        file.write(dump_line(event(2)))
    assert _codes(imports.run(home)) == {f"2026/02/03/{RUN}.jsonl": "already_exists"}


def _other_bytes(copy: Any, log: Path) -> Any:
    def changing(*given: Any) -> None:
        whole = log.read_bytes()
        log.write_bytes(b" " + whole[1:])
        try:
            copy(*given)
        finally:
            log.write_bytes(whole)

    return changing


def test_a_copy_that_a_kill_left_before_its_note_is_noted(store: Any, home: Path) -> None:
    """maintenance OP-35, case 34: what is stored already with these bytes is imported, and unchanged afterwards."""
    log = write_log(home, begin())
    copied = store.run_log.root.joinpath("sessions", *DAY, log.name)
    copied.parent.mkdir(parents=True)
    copied.write_bytes(log.read_bytes())
    write_state(home, state("a"))
    write_state(store.run_log.root, state("a"))
    units = [store.maintenance.imports.run(home).units for _ in range(2)]
    assert units == [{"imported": 2}, {"unchanged": 2}]


def test_a_log_that_grows_between_the_look_and_the_copy_is_looked_at_again(
    store: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35."""
    log = write_log(home, begin(), ending())
    copied = store.run_log.root.joinpath("sessions", *DAY, log.name)
    known = run_logs.LogPiece.store

    def later(piece: Any, *given: Any) -> None:
        if not copied.exists():
            copied.parent.mkdir(parents=True)
            copied.write_bytes(log.read_bytes()[:50])
        known(piece, *given)

    monkeypatch.setattr(run_logs.LogPiece, "store", later)
    assert store.maintenance.imports.run(home).units == {"grown": 1}
    assert copied.read_bytes() == log.read_bytes()


def test_a_log_that_cannot_be_read_fails_alone_and_a_full_disk_stops_the_import(
    store: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35: after the disk has room the same call goes on."""
    write_log(home, begin())
    imports = store.maintenance.imports

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def unreadable(*_: Any) -> Any:
        raise BackendUnavailable("Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(run_logs, "open_run", unreadable)
        assert _codes(imports.run(home)) == {f"2026/02/03/{RUN}.jsonl": "invalid_value"}
        patched.undo()
        patched.setattr(os, "rename", failing)
        with pytest.raises(BackendUnavailable, match="No space left"):
            imports.run(home)
    assert imports.run(home).units == {"imported": 1}


def test_the_run_log_root_is_no_source_of_itself(store: Any, home: Path) -> None:
    """maintenance OP-83: a home that is used in place needs no import."""
    write_log(store.run_log.root, begin())
    found = store.maintenance.imports.plan(store.run_log.root)
    assert _codes(found) == {f"2026/02/03/{RUN}.jsonl": "invalid_value"}
    with pytest.raises(Conflict, match="looked for"):
        store.maintenance.imports.detect(home)


def test_the_command_imports_a_home(database: Database, home: Path) -> None:
    """maintenance OP-72, OP-83."""
    database.open()
    write_log(home, begin())
    told = lastlight_state("import", home, "--url", database.url, "--state-dir", database.state_dir, "--json")
    assert (told.code, told.data["kind"], told.data["rows"]) == (0, "codelia", {"run_logs": 1})


@pytest.mark.parametrize("kept", [0, 16, 4_096])
def test_a_damaged_database_of_states_hides_nothing_beside_it(store: Any, home: Path, kept: int) -> None:
    """maintenance OP-35, OP-83: it is one unit that fails; mended, its states are imported."""
    write_log(home, begin(), ending())
    write_state(home, state("one"))
    index = write_indexed(home, OTHER_SESSION, '{"role":"user","content":"two"}\n')
    sound = index.read_bytes()
    index.write_bytes(sound[:kept] + b"\xff" * (len(sound) - kept))
    imports = store.maintenance.imports
    plan, done = imports.plan(home), imports.run(home)
    assert (plan.units, plan.failures) == (done.units, done.failures)
    assert (done.units, _codes(done)) == ({"failed": 1, "imported": 2}, {"state.db": "damaged_source"})
    assert store.run_log.states.get(SESSION).messages == (said("one"),)
    index.write_bytes(sound)
    assert imports.run(home).units == {"imported": 1, "unchanged": 2}
