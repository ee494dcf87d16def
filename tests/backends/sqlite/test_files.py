import os
import stat
from pathlib import Path

import pytest

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_and_directories_are_their_owners_alone(tmp_path: Path) -> None:
    """backends B-9: 0600 and 0700, the side files included, whatever the umask allows."""
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "deeper" / "lastlight.db"
        with StateStore.open(path) as store:
            with store.transaction():
                pass
            assert {file.name: oct(mode(file)) for file in path.parent.iterdir()} == {
                "lastlight.db": "0o600", "lastlight.db-wal": "0o600", "lastlight.db-shm": "0o600",
            }  # fmt: skip
        assert [oct(mode(folder)) for folder in (path.parent, path.parent.parent)] == ["0o700", "0o700"]
    finally:
        os.umask(before)


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """backends B-9: only new ones are made private."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o750)
    path = folder / "lastlight.db"
    path.touch()
    path.chmod(0o640)
    StateStore.open(path).close()
    assert (mode(folder), mode(path)) == (0o750, 0o640)


def test_creating_a_file_that_is_there_leaves_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    files.create_private_file(path)
    assert path.read_text() == "content"


@pytest.mark.parametrize("name", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "fuse", "ceph"])
def test_file_systems_from_elsewhere_are_remote(name: str) -> None:
    """backends B-23: NFS, SMB, 9p, virtiofs, FUSE."""
    assert files.is_remote(name)


@pytest.mark.parametrize("name", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "apfs", "unknown"])
def test_file_systems_of_this_machine_are_not(name: str) -> None:
    """backends B-23."""
    assert not files.is_remote(name)


def test_the_file_system_is_that_of_the_next_directory_that_exists() -> None:
    assert files.file_system(Path("/proc/self/no/such/folder/lastlight.db")) == "proc"
