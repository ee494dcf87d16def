"""SQLite files, and their directories, that lose the right to be written under an open store, and get it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Takes the right away below the first argument, gives it back, and prints what each read and write met.
PROGRAM = """
import json, os, sys
from pathlib import Path
import sqlalchemy as sa
from lastlight_state import Settings, StateStore

folder, kind, journal, lost = Path(sys.argv[1]), *sys.argv[2:]
settings = Settings(journal_mode=journal)
path = folder / "state.db"
with StateStore.open(path, migrate=True, settings=settings) as store:
    store.states.put("a", 1)
given = {"engine": sa.create_engine(f"sqlite:///{path}")} if kind == "engine" else {"url": path}
with StateStore.open(**given, settings=settings) as store:
    store.states.get("a")

    def met(call, *arguments):
        try:
            call(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "done"

    place, before = (path, 0o600) if lost == "file" else (folder, 0o700)
    os.chmod(place, before & 0o555)
    if (kind, lost) == ("engine", "file"):
        given["engine"].dispose()  # a connection that is open goes on writing
    said = [met(store.states.get, "a"), met(store.states.put, "b", 1), met(store.states.put, "c", 1)]
    said.append(met(store.states.get, "a"))
    os.chmod(place, before)
    for name in folder.iterdir():  # SQLite gives what it makes the mode of the database
        os.chmod(name, 0o600)
    print(json.dumps([*said, met(store.states.put, "d", 1), met(store.states.get, "a"), met(store.states.put, "e", 1)]))
"""
#: Root reads and writes whatever the modes say, unless it has lost the right to.
AS_OWNER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []

#: What a write says that finds no right.
REFUSED = {
    ("own", "file"): "BackendUnavailable: the database file cannot be opened: Permission denied; check that",
    ("engine", "file"): "BackendUnavailable: the database cannot be written: this process may only read {path}",
    (
        "own",
        "directory",
    ): "BackendUnavailable: the database file cannot be opened or written (SQLITE_READONLY_DIRECTORY)",
    ("engine", "directory"): (
        "BackendUnavailable: the database file cannot be opened or written (SQLITE_READONLY_DIRECTORY)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own", "engine"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("lost", ["file", "directory"])
def test_reads_go_on_and_writes_are_refused_until_the_right_is_back(
    tmp_path: Path, kind: str, journal: str, lost: str
) -> None:
    """backends B-199: also on connections that were opened meanwhile, without opening the store again."""
    found = subprocess.run(
        [*AS_OWNER, sys.executable, "-c", PROGRAM, tmp_path, kind, journal, lost], capture_output=True, check=False
    )
    assert found.returncode == 0, found.stderr.decode()
    read, *writes, again, first, then, later = json.loads(found.stdout)
    assert (read, again, first, then, later) == ("done",) * 5
    if (journal, lost) == ("wal", "directory"):  # the log is there already
        assert writes == ["done", "done"]
    else:
        wanted = REFUSED[kind, lost].format(path=tmp_path / "state.db")
        assert [write[: len(wanted)] for write in writes] == [wanted, wanted]
