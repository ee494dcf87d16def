"""Commands that look at a SQLite file on a mount that may only be read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.calls import fill, lastlight_state
from support.each import with_each
from support.maintenance.left_behind import killed, looks_of

from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.databases import SqliteTemplate

LOOKING = [
    "ls runs",
    "ls mailboxes",
    "current",
    "check",
    "stats",
    "doctor",
    "query SELECT+1",
    "show run {run}",
    "log {run}",
    "export run {run} --out {out}",
]


@pytest.fixture(params=["at rest", "left by a killed writer"])
def mounted(
    request: pytest.FixtureRequest, sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock
) -> Iterator[tuple[Path, str]]:
    """A folder with a database on a read-only mount, and the id of a run."""
    service, mount = tmp_path / "service", tmp_path / "mount"
    service.mkdir(mode=0o700)
    mount.mkdir()
    with sqlite_template.fresh(service, frozen_clock) as database:
        run = fill(database.open()).run
    if request.param != "at rest":
        killed(service / "lastlight.db", "-wal")
    bound = subprocess.run(["mount", "--bind", "-o", "ro", str(service), str(mount)], check=False, capture_output=True)
    if bound.returncode:
        pytest.skip(f"mounting is refused: {bound.stderr.decode()}")
    try:
        with pytest.raises(OSError, match="Read-only"):
            (mount / "file").touch()
        yield mount, run
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@with_each("command", LOOKING)
def test_a_file_on_a_read_only_mount_is_looked_at_and_nothing_is_left(
    mounted: tuple[Path, str], command: str, tmp_path: Path
) -> None:
    """maintenance OP-2."""
    mount, run = mounted
    before = looks_of(mount)
    words = [word.format(run=run, out=tmp_path / "run.tar.gz").replace("+", " ") for word in command.split()]
    answer = lastlight_state(*words, "--url", mount / "lastlight.db", "--state-dir", mount, "--json")
    assert answer.code == 0, answer
    assert looks_of(mount) == before
