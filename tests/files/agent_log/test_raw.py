"""Untruncated tool results beside the log."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.agent_log.logs import SANDBOX, SESSION, agent_log, call, ended, lines_of, path_of, put, said, text
from support.each import with_each
from support.jsonl.lines import child, counted

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable, InvalidValue, NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog, RawFile, Slug

BIG = "é😀 line\n" * 20_000


def kept(log: AgentLog, *results: Any, session_id: str = "s-1") -> list[dict[str, Any]]:
    """The blocks of results fed into a session."""
    with log.writer.open(place=SANDBOX, session_id=session_id, sync="os") as writer:
        writer.feed_many([ended(f"c{n}", result) for n, result in enumerate(results)])
        return [line["message"]["content"][0] for line in lines_of(writer.path)]


def raw_directory(log: AgentLog, session_id: str = "s-1") -> Path:
    return path_of(log, session_id).with_suffix("") / "raw"


def test_a_result_below_the_cap_has_no_reference(log: AgentLog) -> None:
    """agent-log L-70, case 24."""
    assert "raw_ref" not in kept(log, "x" * 65_536)[0]
    assert not raw_directory(log).exists()


def test_the_whole_result_is_kept_byte_for_byte(log: AgentLog) -> None:
    """agent-log L-3, L-71, L-73: 5 MB."""
    whole = BIG * 25
    block = kept(log, whole)[0]
    reference = block["raw_ref"]
    data = whole.encode()
    assert list(block) == ["type", "tool_use_id", "content", "raw_ref"]
    assert reference == {
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "chars": len(whole) + 25 * 20_000,
    }
    assert log.raw.get("s-1", reference["sha256"]) == data
    with log.raw.open("s-1", reference["sha256"]) as file:
        assert file.read(100) == data[:100]
    path = raw_directory(log) / f"{reference['sha256']}.txt"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_equal_results_share_one_file_and_it_is_written_once(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-72, L-74."""
    renames = counted(monkeypatch, os, "rename")
    first, second = kept(log, BIG, BIG)
    assert first["raw_ref"] == second["raw_ref"]
    assert (len(renames), len(list(raw_directory(log).iterdir()))) == (1, 1)
    assert log.raw.list("s-1") == (RawFile(sha256=first["raw_ref"]["sha256"], bytes=len(BIG.encode())),)


def test_lone_surrogates_are_kept_as_their_bytes(log: AgentLog) -> None:
    """agent-log L-71."""
    block = kept(log, "\ud83d" + "x" * 70_000)[0]
    data = b"\xed\xa0\xbd" + b"x" * 70_000
    assert log.raw.get("s-1", block["raw_ref"]["sha256"]) == data
    assert log.reader.read("s-1").lines[0].value["message"]["content"][0]["content"].startswith("\ufffdx")


def test_a_half_written_file_of_the_name_is_replaced(log: AgentLog) -> None:
    """agent-log L-72: another size is not that content."""
    reference = kept(log, BIG)[0]["raw_ref"]
    path = raw_directory(log) / f"{reference['sha256']}.txt"
    path.write_bytes(b"half")
    kept(log, BIG)
    assert log.raw.get("s-1", reference["sha256"]) == BIG.encode()


@with_each(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/hostname")), None),
    ],
)
def test_what_is_not_the_content_is_never_given_out(tmp_path: Path, damage: Any, reason: str | None) -> None:
    """agent-log L-15, L-73: and the log still reads."""
    log = agent_log(tmp_path)
    reference = kept(log, BIG, "small")[0]["raw_ref"]
    damage(raw_directory(log) / f"{reference['sha256']}.txt")
    with pytest.raises(NotFound if reason else UnsafePath) as caught:
        log.raw.get("s-1", reference["sha256"])
    assert reason is None or reason in str(caught.value)
    assert len(log.reader.read("s-1").lines) == 2


def test_the_result_is_found_in_any_log_of_that_id(log: AgentLog) -> None:
    """agent-log L-73."""
    reference = kept(log, BIG)[0]["raw_ref"]
    put(log, "", slug="-app")
    assert log.raw.get("s-1", reference["sha256"]) == BIG.encode()
    with pytest.raises(NotFound):
        log.raw.get("s-1", reference["sha256"], slug="-app")


def test_unknown_sessions_and_digests_are_told(log: AgentLog) -> None:
    """agent-log L-73."""
    with pytest.raises(NotFound) as caught:
        log.raw.get("s-9", "0" * 64)
    assert caught.value.reason == "no such session"
    for digest in ("", "0" * 63, "A" * 64, "../" + "0" * 61, 5):
        with pytest.raises(InvalidValue):
            log.raw.get("s-9", digest)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        log.raw.list("s-9")
    put(log, "")
    assert log.raw.list("s-1") == ()


def test_verify_compares_files_with_names_and_with_the_log(log: AgentLog) -> None:
    """agent-log L-73."""
    digests = [block["raw_ref"]["sha256"] for block in kept(log, BIG + "0", BIG + "1", BIG + "2")]
    stray = hashlib.sha256(b"stray").hexdigest()
    directory = raw_directory(log)
    (directory / f"{stray}.txt").write_bytes(b"stray")
    (directory / "notes.txt").write_bytes(b"")
    (directory / f"{digests[0]}.txt").write_bytes(b"?")
    (directory / f"{digests[1]}.txt").unlink()
    with path_of(log).open("ab") as file:
        file.write(b'{"type":"user","message":{"content":[5,{"raw_ref":7},{"raw_ref":{}}]}}')
    found = log.raw.verify("s-1")
    assert set(found.sound) == {digests[2], stray}
    assert (found.damaged, found.missing, found.unreferenced) == ((digests[0],), (digests[1],), (stray,))


def test_a_link_in_place_of_the_directory_is_not_followed(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-15."""
    outside = tmp_path / "outside"
    outside.mkdir()
    raw_directory(log).parent.mkdir(parents=True)
    raw_directory(log).symlink_to(outside)
    with pytest.raises((UnsafePath, BackendUnavailable)):
        kept(log, BIG)
    assert list(outside.iterdir()) == []
    put(log, "")
    with pytest.raises((UnsafePath, BackendUnavailable)):
        log.raw.list("s-1")


def test_a_failed_write_leaves_neither_file_nor_line(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-72."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(BackendUnavailable):
        kept(log, BIG)
    assert list(raw_directory(log).iterdir()) == []
    assert not path_of(log).exists()


@with_each(("sync", "files", "directories"), [("os", 0, 0), ("end", 1, 4)])
def test_files_are_on_disk_before_their_line_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Any, files: int, directories: int
) -> None:
    """agent-log L-72."""
    log = agent_log(tmp_path)
    path_of(log).parent.mkdir(parents=True)
    with log.writer.open(place=SANDBOX, session_id="s-1", sync=sync) as writer:
        calls = counted(monkeypatch, os, "fdatasync", "fsync", "write")
        writer.feed(ended("c", BIG))
        monkeypatch.undo()
    assert (calls.count("fdatasync"), calls.count("fsync")) == (files, directories)
    assert "fdatasync" not in calls[calls.index("write") :]


def test_looking_at_the_files_holds_nothing_open(log: AgentLog) -> None:
    """agent-log L-73."""
    kept(log, BIG)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(10):
        assert len(log.raw.list("s-1")) == 1
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_a_file_that_cannot_be_opened_is_backend_unavailable(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-24, L-73."""
    digest = kept(log, BIG)[0]["raw_ref"]["sha256"]
    real = os.open

    def fail(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(".txt"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(BackendUnavailable):
        log.raw.get("s-1", digest)
    assert log.raw.verify("s-1").damaged == (digest,)


def feed_big_results_for_ever(root: Path, name: int) -> None:
    """Results above the cap, each another one."""
    with agent_log(root, sync="os").writer.open() as writer:
        writer.feed_many([SESSION, said(call("c"))])
        for n in range(1_000_000):
            writer.feed(ended("c", f"{name} {n} {'x' * 70_000}"))


@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_writer_leaves_no_line_that_refers_to_a_missing_file(
    log: AgentLog, tmp_path: Path, rounds: int
) -> None:
    """agent-log L-71, L-72."""
    for number in range(rounds):
        before = path_of(log).stat().st_size if number else 0
        process = child(feed_big_results_for_ever, tmp_path, number)
        while not path_of(log).exists() or path_of(log).stat().st_size < before + 200_000:
            time.sleep(0.001)
        time.sleep(0.0007 * (number % 10))
        process.kill()
        process.join()
    found = log.raw.verify("s-1")
    assert (found.missing, found.damaged) == ((), ())
    lines = [line for line in log.reader.scan("s-1") if b"raw_ref" in line.raw]
    assert len(found.sound) - len(found.unreferenced) == len(lines) >= 2 * rounds


def test_a_log_without_results_has_none(log: AgentLog) -> None:
    with log.writer.open(place=Slug("x"), session_id="s-1") as writer:
        writer.feed(said(text("hi")))
    check = log.raw.verify("s-1")
    assert (check.sound, check.damaged, check.missing, check.unreferenced) == ((), (), (), ())


def test_only_files_that_are_named_by_a_hash_are_results(log: AgentLog) -> None:
    """agent-log L-73."""
    digest = kept(log, BIG)[0]["raw_ref"]["sha256"]
    folder = raw_directory(log)
    for name in ("a" * 64, "b" * 64 + ".txt.tmp", "C" * 64 + ".txt", "d" * 63 + ".txt", "notes.txt"):
        (folder / name).write_bytes(b"x")
    (folder / f"{'e' * 64}.txt").mkdir()
    assert [file.sha256 for file in log.raw.list("s-1")] == [digest]
    check = log.raw.verify("s-1")
    assert (check.sound, check.damaged, check.unreferenced) == ((digest,), (), ())


@with_each("reference", [{"sha256": 5}, {"sha256": None}, {}, "x", 5, None])
def test_a_reference_that_is_none_refers_to_nothing(tmp_path: Path, reference: Any) -> None:
    """agent-log L-73."""
    log = agent_log(tmp_path)
    block = {"type": "tool_result", "tool_use_id": "c", "content": "x", "raw_ref": reference}
    put(log, dump_line({"type": "user", "message": {"role": "user", "content": [block, "x"]}}))
    assert log.raw.verify("s-1").missing == ()
