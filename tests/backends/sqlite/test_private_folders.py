"""What killed processes leave of private copies, and who removes it."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.maintenance.left_behind import DEATHS, killed

from lastlight_state.backends.sqlite import private_copies
from lastlight_state.backends.sqlite.private_copies import PREFIX
from lastlight_state.testing import SqliteTemplate
from lastlight_state.testing.clock import FrozenClock

#: Copies a file for reading, and dies.
COPIED = """
import os, sys
from pathlib import Path
from lastlight_state.backends.sqlite import private_copies
copy = private_copies.take_copy(Path(sys.argv[1]), checked=False)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def _left(place: Path, name: str = f"{PREFIX}left") -> Path:
    """A folder as a killed process leaves it: whole, and without its lock."""
    (place / name).mkdir()
    for suffix in ("", "-wal", "-shm"):
        (place / name / f"copy.db{suffix}").write_bytes(b"private")
    return place / name


def _names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_what_a_killed_look_left_is_removed_by_the_next_copy(
    sqlite_template: SqliteTemplate,
    tmp_path: Path,
    place: Path,
    frozen_clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """maintenance OP-16."""
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        file = Path(database.url)
        killed(file, next(iter(DEATHS)))
        command, environment = [sys.executable, "-c", COPIED, str(file)], {**os.environ, "TMPDIR": str(place)}
        died = subprocess.run(command, env=environment, check=False)
        assert died.returncode == -signal.SIGKILL
        [left] = place.iterdir()
        assert (left / "copy.db").stat().st_size
        copy = private_copies.take_copy(file, checked=False)
        assert [*place.iterdir()] == [copy.path.parent]
        assert copy.path.parent != left
        del copy
    assert [*place.iterdir()] == []


def test_what_a_living_process_reads_stays(place: Path) -> None:
    """maintenance OP-16: also where another process, forked from it, is what lives."""
    folder, held = private_copies.make_folder(str(place))
    (folder / "copy.db").write_bytes(b"private")
    private_copies.remove_left(str(place))
    assert _names(place) == {folder.name}
    inherited = os.dup(held)  # as a child has it
    os.close(held)
    private_copies.remove_left(str(place))
    assert _names(place) == {folder.name}
    os.close(inherited)
    private_copies.remove_left(str(place))
    assert _names(place) == set()


def test_only_folders_of_that_name_and_user_are_removed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-16: and nothing that a link leads to, or that holds more than files."""
    elsewhere = _left(tmp_path)
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").touch()
    (_left(place, f"{PREFIX}deep") / "folder").mkdir()
    _left(place, "lastlight-demo-x")
    before = _names(place)
    private_copies.remove_left(str(place))
    assert _names(place) == before
    assert (elsewhere / "copy.db").exists()
    mine = _left(place)
    other = os.geteuid() + 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: other)
        private_copies.remove_left(str(place))
        assert mine.exists()
    private_copies.remove_left(str(place))
    assert not mine.exists()


def test_without_locks_a_folder_has_a_name_under_which_nobody_removes_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-16."""

    def refused(_held: int, _how: int) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refused)
        folder, held = private_copies.make_folder(str(place))
    private_copies.remove_left(str(place))
    assert _names(place) == {folder.name}
    assert not folder.name.startswith(PREFIX)
    private_copies.remove(folder, held, os.getpid())
    assert _names(place) == set()


def test_a_place_that_cannot_be_listed_is_left_alone(tmp_path: Path) -> None:
    """maintenance OP-16: making the copy tells what is wrong with it."""
    private_copies.remove_left(str(tmp_path / "missing"))


def test_a_folder_that_cannot_be_locked_for_want_of_descriptors_is_not_left(place: Path) -> None:
    """maintenance OP-16: nothing is left behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            private_copies.make_folder(str(place))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert _names(place) == set()


def test_to_look_for_what_was_left_keeps_no_descriptor_open(place: Path) -> None:
    """maintenance OP-16: a descriptor of a folder that stays would hold its lock."""
    (_left(place, f"{PREFIX}deep") / "folder").mkdir()
    _left(place)
    private_copies.remove_left(str(place))
    held = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert not [target for target in held if place in target.parents]
