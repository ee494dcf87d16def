"""Commands that write new files on a full disk leave nothing, and work when there is room again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.full_disk import largest_file
from support.maintenance.threads import logged

from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger

Command = Callable[[Any, Path, Path], object]

#: Each writes new files from the store or from a damaged log.
COMMANDS: dict[str, Command] = {
    "salvage": lambda m, log, _: m.repair.salvage(log),
    "salvage to another place": lambda m, log, folder: m.repair.salvage(log, to=folder / "copy.jsonl"),
    "replace": lambda m, log, _: m.repair.salvage(log, replace=True),
    "export": lambda m, _, folder: m.bundles.export("run", "r", folder / "r.zip"),
    "backup": lambda m, _, folder: m.backup.create(folder / "backup"),
}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_what_finds_no_room_leaves_nothing_and_works_again_later(
    sqlite_database: Database, tmp_path: Path, name: str
) -> None:
    """maintenance OP-45, OP-60, OP-66: whole lines, rejects and half lines that wait to be written included."""
    store, folder = sqlite_database.open(), tmp_path / "out"
    store.workflows.runs.create(
        "w", trigger=Trigger("t"), phase="p", context={"x": "y" * 200_000}, options=RunOptions(id="r")
    )
    store.close()
    store = sqlite_database.open()
    folder.mkdir()
    log = _damaged(logged(sqlite_database.state_dir, "s-1", "hi"))
    was = _files(tmp_path)
    for room in (100, 20_000, 150_000):
        with largest_file(room), pytest.raises(BackendUnavailable):
            COMMANDS[name](store.maintenance, log, folder)
        assert (room, _files(tmp_path)) == (room, was)
        sqlite_database.clock.advance(seconds=660)  # there may have been no room for the end of a receipt, either
    COMMANDS[name](store.maintenance, log, folder)
    assert _files(tmp_path) > was


def _damaged(log: Path) -> Path:
    """Repeat the log until it is large, with a torn line here and there."""
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole + whole[: n % 50] + b"\0\n" for n in range(1_000)))
    return log


def _files(folder: Path) -> set[str]:
    """All files but the database's own."""
    found = {f"{at}/{name}" for at, _, names in os.walk(folder) for name in names}
    return {name for name in found if "lastlight.db" not in name or "/out/" in name}
