"""Session states: replaced whole, never backwards, whatever fails."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.migrations.nobody import as_nobody
from support.run_log.logs import (
    EXAMPLE_SESSION,
    FIXTURES,
    NOW,
    OTHER_SESSION,
    RUN,
    SESSION,
    files_below,
    head,
    id_of,
    put,
    request,
    response,
    run_log,
)

from lastlight_state.db.lists import pages
from lastlight_state.errors import (
    BackendUnavailable,
    CorruptData,
    InvalidValue,
    NewerSchema,
    NotFound,
    PayloadTooLarge,
    StaleVersion,
    UnsafePath,
)
from lastlight_state.files.run_log import RunLog, SessionState, states
from lastlight_state.files.run_log.states import files
from lastlight_state.testing.clock import FrozenClock

USER = {"role": "user", "content": "hi"}


def state(*messages: dict[str, Any], session_id: str = SESSION, **fields: Any) -> SessionState:
    return SessionState.model_validate({"session_id": session_id, "messages": messages or (USER,), **fields})


def path_of(log: RunLog, session_id: str = SESSION) -> Path:
    return log.root / "sessions" / "state" / f"{session_id}.json"


def leave(log: RunLog, data: bytes | str, session_id: str = SESSION) -> Path:
    """A snapshot with this content, as somebody else left it."""
    path = path_of(log, session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_the_seeds_example_is_read_and_put_back_with_equal_json(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-80."""
    leave(log, (FIXTURES / "state.json").read_bytes(), EXAMPLE_SESSION)
    found = log.states.get(EXAMPLE_SESSION)
    copy = run_log(tmp_path / "copy")
    assert copy.states.put(found) == found
    assert json.loads(path_of(copy, EXAMPLE_SESSION).read_text()) == json.loads((FIXTURES / "state.json").read_text())


def test_a_snapshot_is_replaced_whole(log: RunLog) -> None:
    """run-log RL-72: fields that are not given are gone, unknown ones stay."""
    log.states.put(state(USER, USER, run_id=RUN, meta={"k": 1}, invoke_seq=1))
    stored = log.states.put(state(invoke_seq=2, later={"x": None}))
    assert stored == log.states.get(SESSION)
    assert json.loads(path_of(log).read_text()) == {
        "schema_version": 1,
        "session_id": SESSION,
        "updated_at": "2026-02-03T12:00:30.001Z",
        "invoke_seq": 2,
        "messages": [USER],
        "later": {"x": None},
    }
    assert path_of(log).stat().st_mode & 0o777 == 0o600
    assert files_below(log.root) == [f"sessions/state/{SESSION}.json"]


@with_each(
    ("fields", "based_on"),
    [
        ({"updated_at": NOW - timedelta(milliseconds=1), "invoke_seq": 5}, None),
        ({"invoke_seq": 4}, None),
        ({}, None),
        ({"invoke_seq": 6}, NOW - timedelta(seconds=1)),
    ],
)
def test_a_snapshot_never_goes_backwards_unless_forced(
    tmp_path: Path, fields: dict[str, Any], based_on: datetime | None
) -> None:
    """run-log RL-71: an older time, a lower or a missing invocation, a save in between."""
    log = run_log(tmp_path)
    log.states.put(state(invoke_seq=5))
    before = path_of(log).read_bytes()
    with pytest.raises(StaleVersion) as stale:
        log.states.put(state(USER, USER, **fields), based_on=based_on)
    assert stale.value.found in ((NOW, 5), NOW)
    assert path_of(log).read_bytes() == before
    assert len(log.states.put(state(USER, USER, **fields), based_on=based_on, force=True).messages) == 2


@with_each("stored", [{}, {"updated_at": NOW}, {"invoke_seq": 1}, {"updated_at": NOW, "invoke_seq": 1}])
@with_each("given", [{"invoke_seq": 1}, {"updated_at": NOW, "invoke_seq": 1}])
def test_a_snapshot_without_time_or_number_is_no_later_one(
    log: RunLog, stored: dict[str, Any], given: dict[str, Any]
) -> None:
    """run-log RL-71: whatever other programs left out, the same moment and number replace it."""
    at = {"updated_at": NOW.isoformat().replace("+00:00", "Z")} if "updated_at" in stored else {}
    leave(log, json.dumps({"schema_version": 1, "session_id": SESSION, "messages": [], **stored, **at}))
    assert log.states.put(state(USER, USER, **given)).messages == (USER, USER)


def test_equal_numbers_with_other_content_are_written_and_equal_content_is_not(log: RunLog) -> None:
    """run-log RL-71."""
    first = log.states.put(state(updated_at=NOW, invoke_seq=1))
    inode = path_of(log).stat().st_ino
    assert log.states.put(first) == first
    assert path_of(log).stat().st_ino == inode
    assert log.states.put(state(USER, USER, updated_at=NOW, invoke_seq=1), based_on=NOW).messages == (USER, USER)


def test_a_clock_that_went_back_does_not_block_the_owner(tmp_path: Path) -> None:
    """run-log RL-71."""
    clock = FrozenClock(NOW)
    log = run_log(tmp_path, clock=clock)
    first = log.states.put(state())
    clock.set(NOW - timedelta(hours=1))
    second = log.states.put(state(USER, USER))
    assert first.updated_at is not None
    assert second.updated_at == first.updated_at + timedelta(milliseconds=1)


def test_what_may_not_be_in_a_history_is_refused_before_the_first_byte(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-72."""
    monkeypatch.setattr(files, "MAX_BYTES", 10_000)
    cycle: list[object] = []
    cycle.append(cycle)
    log.states.put(state())
    before = path_of(log).read_bytes()
    for bad, error in (
        (state({"n": float("nan")}), InvalidValue),
        (state({"n": [float("inf")]}), InvalidValue),
        (state({"n": object()}), InvalidValue),
        (state({"n": cycle}), InvalidValue),
        (state(USER, schema_version=2), InvalidValue),
        (state(USER, updated_at=datetime(2026, 1, 1)), InvalidValue),  # noqa: DTZ001
        (state({"n": "x" * 10_000}), PayloadTooLarge),
        (state(session_id="../x"), UnsafePath),
        (state(session_id="s-1"), InvalidValue),
    ):
        with pytest.raises(error):
            log.states.put(bad)
    assert path_of(log).read_bytes() == before
    assert files_below(log.root) == [f"sessions/state/{SESSION}.json"]
    assert log.states.put(state({"text": "\ud800"})).messages == ({"text": "\ud800"},)
    with pytest.raises(InvalidValue, match="two halves of a surrogate pair stand together"):
        log.states.put(state({"text": "a\\\ud83d\udc69"}))


def test_half_of_a_character_in_a_foreign_state_stays_in_a_change_of_it(log: RunLog) -> None:
    """run-log RL-72: as its writer left it, in texts and keys; lists show the replacement character."""
    message = '{"role":"user","content":"cut \\ud83d","\\udc69":[18446744073709551617,0.5]}'
    path_of(log).parent.mkdir(parents=True, exist_ok=True)
    path_of(log).write_text(f'{{"session_id":"{state().session_id}","messages":[{message}]}}')
    log.states.update(state().session_id, lambda found: found.model_copy(update={"invoke_seq": 1}))
    assert message.encode() in path_of(log).read_bytes()
    [entry] = log.states.list().items
    assert entry.last_user_message == "cut \ufffd"
    [kept] = log.states.get(state().session_id).messages
    assert kept == {"role": "user", "content": "cut \ud83d", "\udc69": [2**64 + 1, 0.5]}


def test_a_snapshot_of_exactly_the_limit_is_put(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-72."""
    given = state(USER, updated_at=NOW)
    log.states.put(given)
    size = path_of(log).stat().st_size
    monkeypatch.setattr(files, "MAX_BYTES", size)
    assert log.states.put(given, force=True) == given
    monkeypatch.setattr(files, "MAX_BYTES", size - 1)
    with pytest.raises(PayloadTooLarge):
        log.states.put(given, force=True)


def test_what_is_no_number_is_refused_however_deep_it_lies(log: RunLog) -> None:
    """run-log RL-72."""
    nested: Any = float("nan")
    for level in range(400):
        nested = [nested] if level % 2 else {"a": nested}
    with pytest.raises(InvalidValue, match="NaN"):
        log.states.put(state({"n": nested}))


@with_each(
    "content",
    [
        "garbage",
        "[]",
        "{}",
        "",
        json.dumps({"session_id": SESSION, "messages": "x"}),
        json.dumps({"session_id": SESSION, "messages": [None]}),
        json.dumps({"session_id": OTHER_SESSION, "messages": []}),
        json.dumps({"session_id": SESSION, "messages": "x", "schema_version": "2"}),
    ],
)
def test_a_damaged_snapshot_is_named_and_kept(tmp_path: Path, content: str) -> None:
    """run-log RL-74."""
    log = run_log(tmp_path)
    path = leave(log, content)
    log.states.put(state(session_id=OTHER_SESSION))
    for call in (log.states.get, log.states.find, lambda _: log.states.put(state())):
        with pytest.raises(CorruptData, match=SESSION):
            call(SESSION)
    found = {entry.session_id: entry.problem for entry in log.states.list()}
    assert found[OTHER_SESSION] is None
    assert found[SESSION] is not None
    log.states.put(state(), force=True)
    assert log.states.get(SESSION).messages == (USER,)
    (kept,) = [name for name in os.listdir(path.parent) if ".bad-" in name]  # noqa: PTH208
    assert (path.parent / kept).read_text() == content
    assert len(log.states.list()) == 2


def test_snapshots_damaged_at_one_moment_keep_a_name_each(log: RunLog) -> None:
    """run-log RL-74."""
    paths = []
    for content in ("{", "[", "not JSON"):
        paths.append(leave(log, content))
        log.states.put(state(), force=True)
    folder = paths[0].parent
    kept = sorted(name for name in os.listdir(folder) if ".bad-" in name)  # noqa: PTH208
    assert [(folder / name).read_text() for name in kept] == ["{", "[", "not JSON"]
    assert [name[-2:] for name in kept[1:]] == ["-2", "-3"]


def test_a_damaged_snapshot_takes_no_name_from_a_link(log: RunLog) -> None:
    """run-log RL-74: not even from one that leads nowhere."""
    path = leave(log, "{")
    link = path.with_name(f"{path.name}.bad-20260203T120030.000Z")
    link.symlink_to("nowhere")
    log.states.put(state(), force=True)
    assert link.is_symlink()
    assert path.with_name(link.name + "-2").read_text() == "{"


def test_a_directory_in_the_place_of_a_snapshot_is_not_cleared(log: RunLog) -> None:
    """run-log RL-76."""
    path_of(log).mkdir(parents=True)
    with pytest.raises(BackendUnavailable):
        log.states.clear(SESSION)
    assert path_of(log).is_dir()


def test_a_directory_in_the_place_of_a_snapshot_is_corrupt(log: RunLog) -> None:
    """run-log RL-74."""
    path_of(log).mkdir(parents=True)
    with pytest.raises(CorruptData, match="directory"):
        log.states.get(SESSION)
    assert log.states.list().items == ()


def test_a_newer_snapshot_is_never_replaced(log: RunLog) -> None:
    """run-log RL-72, RL-74."""
    path = leave(log, json.dumps({"schema_version": 2, "session_id": SESSION, "messages": {}}))
    before = path.read_bytes()
    with pytest.raises(NewerSchema):
        log.states.get(SESSION)
    for force in (False, True):
        with pytest.raises(NewerSchema):
            log.states.put(state(), force=force)
    assert path.read_bytes() == before


def test_an_update_changes_what_is_stored_and_nothing_else(log: RunLog) -> None:
    """run-log RL-73."""
    with pytest.raises(NotFound):
        log.states.update(SESSION, lambda stored: stored)
    first = log.states.put(state(invoke_seq=3))
    assert log.states.update(SESSION, lambda stored: stored) == first
    second = log.states.update(SESSION, lambda stored: stored.model_copy(update={"meta": {"k": 1}}))
    assert (second.meta, second.invoke_seq) == ({"k": 1}, 3)
    assert second.updated_at == NOW + timedelta(milliseconds=1)
    later = NOW + timedelta(hours=1)
    assert (
        log.states.update(SESSION, lambda stored: stored.model_copy(update={"updated_at": later})).updated_at == later
    )
    with pytest.raises(InvalidValue):
        log.states.update(SESSION, lambda stored: stored.model_copy(update={"session_id": OTHER_SESSION}))
    with pytest.raises(InvalidValue):
        log.states.update(SESSION, lambda _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(StaleVersion):
        log.states.update(SESSION, lambda stored: stored.model_copy(update={"invoke_seq": 1}))


def test_a_full_disk_leaves_the_old_snapshot_and_nothing_else(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-70."""
    log.states.put(state())
    before = path_of(log).read_bytes()
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:10])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(BackendUnavailable):
        log.states.put(state(USER, USER))
    assert path_of(log).read_bytes() == before
    assert files_below(log.root) == [f"sessions/state/{SESSION}.json"]


def test_a_leftover_changes_nothing_and_goes_with_the_next_save(log: RunLog) -> None:
    """run-log RL-70."""
    log.states.put(state())
    leftover = path_of(log).with_name(f".{SESSION}.json.tmp")
    leftover.write_text("half")
    assert log.states.get(SESSION).messages == (USER,)
    assert len(log.states.list()) == 1
    log.states.put(state(USER, USER))
    assert not leftover.exists()


def test_sessions_are_listed_by_their_last_change_and_workspace(log: RunLog) -> None:
    """run-log RL-75, case 46."""
    roots: list[str | None] = ["/a/b/", "/a/b", "/a/bc", None, "/a/./b"]
    content = [{"type": "text", "text": "see"}, {"type": "image"}]
    for n, root in enumerate(roots):
        key = "codelia_workspace_root" if n == 1 else "x.lastlight.workspace_root"
        meta = {} if root is None else {"meta": {key: root}}
        log.states.put(state({"role": "user", "content": content}, {"role": "assistant"}, session_id=id_of(n), **meta))
        os.utime(path_of(log, id_of(n)), (n, n))
    assert [entry.session_id for entry in log.states.list()] == [id_of(n) for n in (4, 3, 2, 1, 0)]
    for limit in (1, 2, 50):
        found, token = [], None
        for _ in range(4):
            page = log.states.list(workspace="/a//b", limit=limit, page_token=token)
            found += [entry.session_id for entry in page]
            token = page.next_page_token
            if token is None:
                break
        assert found == [id_of(n) for n in (4, 1, 0)]
    entry = log.states.list().items[0]
    assert (entry.message_count, entry.last_user_message, entry.workspace_root) == (2, "see[image]", "/a/b")


@with_each("moment", [-(2**63), 0, 2**63 - 1])
def test_a_page_goes_on_behind_any_moment_of_a_file(tmp_path: Path, moment: int) -> None:
    """run-log RL-75."""
    log = run_log(tmp_path)
    log.states.put(state())
    found = log.states.list(page_token=pages.encode_token(["states", None], (moment, "")))
    assert len(found) == (moment > 0)


@with_each("moment", [2**63, "0", None])
def test_a_page_goes_on_behind_nothing_else(tmp_path: Path, moment: Any) -> None:
    """run-log RL-75."""
    log = run_log(tmp_path)
    with pytest.raises(InvalidValue):
        log.states.list(page_token=pages.encode_token(["states", None], (moment, "")))


def test_snapshots_that_cannot_be_looked_at_are_listed_with_the_reason() -> None:
    """run-log RL-75: names can be read in a directory that nobody may enter; asked for one, it is an error of ours."""

    def look() -> list[Any]:
        with pytest.raises(BackendUnavailable, match="Permission denied"):
            log.states.find(SESSION)
        return [(entry.session_id, entry.problem) for entry in log.states.list()]

    with TemporaryDirectory() as folder:  # where others may go, unlike pytest's
        Path(folder).chmod(0o755)
        log = run_log(Path(folder))
        log.states.put(state())
        (log.root / "sessions").chmod(0o755)
        path_of(log).parent.chmod(0o444)
        try:
            told = as_nobody(look)
        finally:
            path_of(log).parent.chmod(0o700)
    ((session_id, problem),) = told
    assert session_id == SESSION
    assert "Permission denied" in problem


def test_clearing_leaves_the_logs(log: RunLog) -> None:
    """run-log RL-76."""
    put(log, [head(session_id=SESSION)])
    log.states.put(state())
    assert log.states.clear(SESSION)
    assert not log.states.clear(SESSION)
    assert log.states.find(SESSION) is None
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl"]


def test_a_lost_state_is_reconstructed_from_the_last_prompt_and_its_answer(log: RunLog) -> None:
    """run-log RL-77."""
    assert log.states.reconstruct(SESSION) is None
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    put(log, [head(session_id=SESSION), request(3, "old"), response(3), request(4, "a", "b"), response(4)])
    put(log, [head(id_of(9), session_id=SESSION, started_at="2026-02-04T00:00:00Z")], id_of(9), "2026/02/04")
    found = log.states.reconstruct(SESSION)
    assert found is not None
    assert [message["content"] for message in found.messages] == ["a", "b", "yes"]
    assert (found.invoke_seq, found.run_id, found.meta) == (4, RUN, {"x.lastlight.reconstructed": True})
    put(log, [head(session_id=SESSION), request(5, "a"), response(5) | {"output": {"messages": [call]}}])
    found = log.states.reconstruct(SESSION)
    assert found is not None
    assert [message["content"] for message in found.messages] == ["a"]
    assert log.states.find(SESSION) is None
    assert log.states.put(found).updated_at == datetime(2026, 2, 3, 12, 0, 30, tzinfo=UTC)


def test_the_first_of_two_answers_with_one_number_is_reconstructed(log: RunLog) -> None:
    """run-log RL-77."""
    put(log, [head(session_id=SESSION), request(3, "a"), response(3, "first"), response(3, "second")])
    found = log.states.reconstruct(SESSION)
    assert found is not None
    assert [message["content"] for message in found.messages] == ["a", "first"]


@with_each(
    "after",
    [
        [response(3, "early"), request(4, "a")],
        [request(3, "old"), request(4, "a"), response(3, "late")],
        [request(4, "a"), response(5, "of another")],
        [request(4, "a"), response(4) | {"output": 5}],
        [request(4, "a"), response(4) | {"seq": "4"}],
    ],
    ids=["before any prompt", "of an earlier prompt", "of a later one", "damaged", "with a number that is none"],
)
def test_an_answer_to_something_else_is_not_reconstructed(tmp_path: Path, after: list[dict[str, Any]]) -> None:
    """run-log RL-77."""
    log = run_log(tmp_path)
    put(log, [head(session_id=SESSION), *after])
    found = log.states.reconstruct(SESSION)
    assert found is not None
    assert ([message["content"] for message in found.messages], found.invoke_seq) == (["a"], 4)


def test_a_run_that_is_removed_while_it_is_looked_through_is_passed_over(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-77: the one before it has the state."""
    put(log, [head(session_id=SESSION), request(3, "older")])
    newest = head(id_of(9), session_id=SESSION, started_at="2026-02-04T00:00:00Z")
    path = put(log, [newest, request(1, "newer") | {"run_id": id_of(9)}], id_of(9), "2026/02/04")
    assert before(monkeypatch, states, "RunReading", path.unlink) == []
    found = log.states.reconstruct(SESSION)
    assert found is not None
    assert (found.run_id, path.exists()) == (RUN, False)


def test_a_version_that_is_no_number_is_none_of_a_newer_program(log: RunLog) -> None:
    """run-log RL-74: and its snapshot is listed as it is."""
    leave(log, json.dumps({"session_id": SESSION, "messages": [USER], "schema_version": "2"}))
    assert [(entry.problem, entry.message_count) for entry in log.states.list()] == [(None, 1)]


@with_each("name", [".json", f".{SESSION}.json", "a" * 250 + ".json", f"{SESSION}.json.bad-1", SESSION])
def test_what_has_no_name_of_a_session_is_no_snapshot(log: RunLog, name: str) -> None:
    """run-log RL-75."""
    leave(log, json.dumps({"session_id": SESSION, "messages": []})).with_name(name).write_text("{}")
    assert [entry.session_id for entry in log.states.list()] == [SESSION]


@with_each("root", ["a/b", "", ".", 5, None, ["/a"]])
def test_a_workspace_is_an_absolute_path(tmp_path: Path, root: Any) -> None:
    """run-log RL-75: of the two places that tell one the first that does so counts."""
    log = run_log(tmp_path)
    meta = {"x.lastlight.workspace_root": root}
    log.states.put(state(meta=meta))
    log.states.put(state(meta=meta | {"codelia_workspace_root": "/b/"}, session_id=OTHER_SESSION))
    assert {entry.session_id: entry.workspace_root for entry in log.states.list()} == {
        SESSION: None,
        OTHER_SESSION: "/b",
    }


@with_each("version", ["2", None, True, 2.5, [2]])
def test_a_version_that_is_no_whole_number_is_read_as_it_is(tmp_path: Path, version: object) -> None:
    """run-log RL-74: it says nothing of a later version of the format."""
    log = run_log(tmp_path)
    path = log.root / "sessions" / "state" / f"{SESSION}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"session_id": SESSION, "messages": [], "schema_version": version}))
    found = log.states.get(SESSION)
    assert found is not None
    assert found.schema_version == version


def test_a_snapshot_of_others_without_a_time_can_be_replaced(log: RunLog) -> None:
    """run-log RL-71: nothing says that it is newer."""
    path = log.root / "sessions" / "state" / f"{SESSION}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema_version": 1, "session_id": SESSION, "messages": [USER]}))
    assert log.states.put(state(USER, USER)).updated_at == NOW
    assert log.states.get(SESSION).messages == (USER, USER)


def test_a_file_whose_name_is_no_id_is_no_snapshot(log: RunLog) -> None:
    """run-log RL-75"""
    log.states.put(state())
    folder = log.root / "sessions" / "state"
    for name in (".hidden.json", f"{'x' * 240}.json", "notes.txt"):
        (folder / name).write_bytes((folder / f"{SESSION}.json").read_bytes())
    assert [entry.session_id for entry in log.states.list()] == [SESSION]
