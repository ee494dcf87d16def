"""The command that mends line files."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_page import documented_keys
from support.cli.calls import files_of, lastlight_state
from support.each import with_each

from lastlight_state.cli import arguments
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database

RECORD = b'{"type":"user","message":{"role":"user"},"timestamp":"2026-02-03T12:00:01.000Z","sessionId":"s"}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A sound log, a torn one, and one with two records glued behind a torn one."""
    folder = tmp_path / "state" / "agent-sessions" / "projects" / "-app"
    folder.mkdir(parents=True)
    (folder / "sound.jsonl").write_bytes(RECORD * 3)
    (folder / "torn.jsonl").write_bytes(RECORD + RECORD[:30])
    (folder / "glued.jsonl").write_bytes(RECORD[:40] + RECORD[:-1] + RECORD)
    return folder


def test_looking_says_what_is_damaged_and_changes_nothing(tree: Path) -> None:
    """maintenance OP-65, OP-72."""
    before = files_of(tree)
    for words in ((), ("--seal", "--dry-run"), ("--replace", "--dry-run"), ("--out", "copies", "--dry-run")):
        said = lastlight_state("repair", tree, *words, "--json")
        assert (said.code, said.error, said.answer["command"]) == (1, "damaged", "repair")
        assert [Path(file["path"]).name for file in said.data["files"]] == ["glued.jsonl", "torn.jsonl"]
        assert (said.data["scanned"], said.data["written"]) == (3, [])
    assert files_of(tree) == before
    assert not Path("copies").exists()


def test_the_logs_of_the_state_directory_are_looked_at_without_a_path(tree: Path) -> None:
    """maintenance OP-65: without any database."""
    said = lastlight_state("repair", "--state-dir", tree.parents[2])
    assert said.code == 1
    assert "3 scanned, 2 damaged" in said.out
    assert "torn.jsonl" in said.out
    assert said.err == "lastlight-state: 2 files damaged\n"


def test_a_url_that_is_none_keeps_nobody_from_looking_at_files(tree: Path) -> None:
    """maintenance OP-65: they need no database."""
    said = lastlight_state("repair", "--state-dir", tree.parents[2], "--url", "postgres:nowhere", "--json")
    assert (said.code, said.error, said.data["scanned"]) == (1, "damaged", 3)


def test_sound_files_are_exit_code_zero(tree: Path) -> None:
    """maintenance OP-72."""
    said = lastlight_state("repair", tree / "sound.jsonl", "--replace", "--json")
    assert (said.code, said.data["files"], said.data["scanned"]) == (0, [], 1)
    assert said.data["classes"] == [{"kind": "record", "sections": 3, "bytes": 3 * len(RECORD)}]
    assert set(documented_keys("repair")) == set(said.data)


def test_torn_tails_are_sealed(tree: Path) -> None:
    """maintenance OP-66."""
    said = lastlight_state("repair", tree, "--seal", "--json")
    assert (said.code, said.data["written"]) == (0, [str(tree / "torn.jsonl")])
    assert (tree / "torn.jsonl").read_bytes() == RECORD + RECORD[:30] + b"\n"


def test_clean_copies_go_below_a_directory(tree: Path, tmp_path: Path) -> None:
    """maintenance OP-66: with what is left out beside them, at the same places as below the path given."""
    before = files_of(tree)
    said = lastlight_state("repair", tree.parent, "--out", tmp_path / "copies", "--json")
    copies = tmp_path / "copies" / "-app"
    assert said.code == 0
    assert sorted(said.data["written"]) == [
        str(copies / f"{name}.jsonl{end}") for name in ("glued", "torn") for end in ("", ".rejects")
    ]
    assert (copies / "glued.jsonl").read_bytes() == RECORD * 2
    assert files_of(tree) == before
    again = lastlight_state("repair", tree.parent, "--out", tmp_path / "copies", "--json")
    assert (again.code, again.error) == (1, "already_exists")


def test_replacing_asks_and_refuses_without_a_terminal(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-70."""
    before = files_of(tree)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    said = lastlight_state("repair", tree, "--replace", "--json")
    assert (said.code, said.error) == (1, "not_confirmed")
    assert files_of(tree) == before
    said = lastlight_state("repair", tree, "--replace", "-y", "--url", tree / "nowhere.db")
    assert (said.code, "no receipt is kept" in said.err) == (0, True)
    assert (tree / "glued.jsonl").read_bytes() == RECORD * 2
    assert lastlight_state("repair", tree).code == 0
    assert len(list(tree.glob("*.damaged-*"))) == 4


def test_what_is_replaced_beside_a_database_leaves_receipts(sqlite_database: Database, tree: Path) -> None:
    """maintenance OP-7, OP-66: one for each file."""
    said = lastlight_state("repair", tree, "--replace", "-y", "--url", sqlite_database.url, "--json")
    receipts = sqlite_database.open().receipts.list(kind="repair", state="done").items
    assert (said.code, sorted(said.data["receipts"])) == (0, sorted(receipt.id for receipt in receipts))
    assert sorted(receipt.scope for receipt in receipts) == ["glued.jsonl", "torn.jsonl"]


@with_each(("answer", "is_refused"), [("y\n", False), ("YES\n", False), ("\n", True), ("no\n", True)])
def test_somebody_at_a_terminal_decides(answer: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-70, OP-71: the question goes to stderr."""
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    with open(theirs) as terminal:  # noqa: PTH123 a descriptor
        monkeypatch.setattr(sys, "stdin", terminal)
        told = io.StringIO()
        monkeypatch.setattr(sys, "stderr", told)
        refusal: Any = None
        try:
            arguments.ask("Replace 2 files?", yes=False)
        except Conflict as error:
            refusal = error.code
    os.close(ours)
    assert (refusal == "not_confirmed") is is_refused
    assert told.getvalue() == "Replace 2 files? [y/N] "


@with_each(
    ("words", "code", "error"),
    [
        (("unknown",), 1, "not_found"),
        (("--seal", "--replace"), 2, "invalid_value"),
        (("--dry-run=true",), 2, "usage"),
        (("--dry-run", "yes", "more"), 2, "usage"),
    ],
)
def test_wrong_words_do_nothing(words: tuple[str, ...], code: int, error: str, tree: Path) -> None:
    """maintenance OP-70, OP-72."""
    before = files_of(tree)
    path = () if "yes" in words or "unknown" in words else (tree,)
    said = lastlight_state("repair", *path, *words, "--json")
    assert (said.code, said.error) == (code, error)
    assert files_of(tree) == before


def test_a_file_that_cannot_be_read_is_exit_code_one(tree: Path) -> None:
    """maintenance OP-65: although no file is damaged."""
    for name in ("torn.jsonl", "glued.jsonl"):
        (tree / name).unlink()
    os.mkfifo(tree / "pipe.jsonl")
    said = lastlight_state("repair", tree, "--json")
    assert (said.code, said.error) == (1, "unread")
    assert [Path(path).name for path in said.data["unread"]] == ["pipe.jsonl"]
    assert (
        f"not read: {tree / 'pipe.jsonl'}: expected a regular file, found a FIFO" in lastlight_state("repair", tree).out
    )
