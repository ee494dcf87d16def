"""How far long commands have come: a bar on a terminal, a line now and then elsewhere, nothing with --quiet."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import Terminal, lastlight_state
from support.maintenance.workflow_databases import NEWEST, made
from support.migrations.eras import ERAS

from lastlight_state import progress
from lastlight_state.cli import progress as display
from lastlight_state.cli.progress import CLEAR, ProgressDisplay
from lastlight_state.conversations import NewSession
from lastlight_state.progress import Progress
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show everything that is told."""
    monkeypatch.setattr(display, "LINE_EVERY", 0.0)


def clock(*times: float) -> Any:
    left: Iterator[float] = iter(times)
    return lambda: next(left)


def test_a_terminal_gets_a_bar_with_rows_and_the_time_left() -> None:
    """maintenance OP-111: and no two within a fifth of a second."""
    terminal = Terminal()
    shown = ProgressDisplay(terminal, lambda _: None, clock(0, 1, 1.1, 11))
    for done in (1_000, 1_001, 6_000):
        shown(Progress("copied messages", done, 12_000, "rows"))
    first, second = terminal.getvalue().split(CLEAR)[1:]
    assert first == "[##......................] copied messages: 1,000 of 12,000 rows"
    assert second == "[############............] copied messages: 6,000 of 12,000 rows, 10 s left"
    shown.clear()
    shown.clear()
    assert terminal.getvalue().endswith(f"left{CLEAR}")


def test_a_log_gets_one_line_now_and_then() -> None:
    """maintenance OP-111: ten seconds apart, of whatever goes on then."""
    notes: list[str] = []
    shown = ProgressDisplay(io.StringIO(), notes.append, clock(0, 1, 5, 11, 12, 25))
    for what, done in (("runs", 1), ("runs", 2), ("runs", 3), ("chats", 1), ("chats", 9)):
        shown(Progress(what, done, None, "rows"))
    assert notes == ["runs: 3 rows", "chats: 9 rows"]


def test_a_total_is_kept_while_the_same_work_goes_on() -> None:
    """maintenance OP-111: a plan tells it, and the work does not."""
    terminal = Terminal()
    shown = ProgressDisplay(terminal, lambda _: None, clock(0, 1, 3))
    shown(Progress("prune", 0, 10, "rows"))
    shown(Progress("prune", 5, None, "rows"))
    assert terminal.getvalue().endswith("prune: 5 of 10 rows, 2 s left")


def test_a_listener_hears_its_own_block_alone() -> None:
    """maintenance OP-111: nobody listens outside."""
    heard: list[Progress] = []
    progress.tell("before", 1)
    with progress.report_to(heard.append):
        progress.tell("within", 2)
    progress.tell("after", 3)
    assert heard == [Progress("within", 2, None, "rows")]


def long_commands(database: Database, tmp_path: Path) -> list[tuple[object, ...]]:
    """Return every long command on a store with a session and an ended run, and of the database of another program."""
    theirs = made(tmp_path / "theirs.db", next(era for era in ERAS if era.stem == NEWEST))
    store = database.open(migrate=True)
    store.conversations.sessions.create(NewSession("s-1"))
    run = store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=RunOptions(id="r-1"))
    store.workflows.runs.finish(run.id, "succeeded")
    return [
        ("copy", "--to", tmp_path / "copy.db", "--migrate-target"),
        ("backup", tmp_path / "backup"),
        ("export", "run", "r-1", "--out", tmp_path / "run"),
        ("export", "session", "s-1", "--out", tmp_path / "session"),
        ("prune", "--kind", "runs", "--keep-days", 0, "--yes"),
        ("doctor",),
        ("vacuum",),
        ("import", theirs),
        ("reencrypt", "--codec", "support.sealing:FIRST"),
    ]


@pytest.mark.slow
def test_every_long_command_says_how_far_it_has_come(fresh_database: Database, tmp_path: Path, at_once: None) -> None:
    """maintenance OP-111."""
    for words in long_commands(fresh_database, tmp_path):
        said = lastlight_state(*words, "--url", fresh_database.url)
        assert ": " in said.err or "…" in said.err, (words, said)


def test_quiet_commands_say_nothing_of_it(fresh_database: Database, tmp_path: Path, at_once: None) -> None:
    """maintenance OP-111."""
    for words in long_commands(fresh_database, tmp_path):
        said = lastlight_state(*words, "--quiet", "--json", "--url", fresh_database.url)
        assert said.err == "", (words, said)
        assert said.answer["command"] == words[0]


def test_a_note_takes_the_place_of_the_bar(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-111: the answer stands on a line of its own."""
    said = typed("doctor", "--url", sqlite_database.url)
    assert said.err.endswith(CLEAR)
    assert "examining" in said.err
    assert "\x1b[K" not in said.out
