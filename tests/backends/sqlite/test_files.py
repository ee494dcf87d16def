import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.each import with_each
from support.open_files import open_below
from support.to_disk import ToDisk

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


def test_new_directories_are_on_disk_and_none_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-9: each in the one above it."""
    calls = ToDisk(monkeypatch, tmp_path).calls
    files.create_private_file(tmp_path / "new" / "deeper" / "lastlight.db")
    monkeypatch.undo()
    assert calls == ["sync .", "sync new"]
    assert open_below(tmp_path.parent) == []


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


REMOTE = (
    "nfs nfs4 cifs smb3 9p virtiofs fuse.sshfs fuse ceph fakeowner fuse.grpcfuse osxfs vmhgfs drvfs beegfs gpfs"
    " orangefs ocfs2 gfs2 lustre of-tomorrow"
).split()


@with_each("name", REMOTE)
def test_file_systems_that_are_not_known_to_be_of_this_machine_are_remote(name: str) -> None:
    """backends B-23: NFS, SMB, 9p, virtiofs, FUSE, those of clusters, and names that nobody knows."""
    assert files.is_remote(name)
    assert not files.tells_changes(name)


@with_each("name", ["vfat", "exfat", "msdos", "unknown"])
def test_file_systems_whose_time_of_change_may_be_set_tell_no_change(name: str) -> None:
    """mailbox MB-110: though they are of this machine."""
    assert not files.is_remote(name)
    assert not files.tells_changes(name)


@with_each("name", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "apfs", "unknown"])
def test_file_systems_of_this_machine_are_not(name: str) -> None:
    """backends B-23."""
    assert not files.is_remote(name)


def test_the_file_system_is_that_of_the_next_directory_that_exists() -> None:
    assert files.file_system(Path("/proc/self/no/such/folder/lastlight.db")) == "proc"


def header(*, page: int = 4096, pages: int = 3, versions: bytes = b"\2\2") -> bytes:
    """The first hundred bytes of a database, as far as they are read."""
    return b"".join(
        [b"SQLite format 3\0", page.to_bytes(2, "big"), versions, bytes(8), pages.to_bytes(4, "big")]
    ).ljust(100, b"\7")


@with_each(
    ("head", "size", "lost"),
    [
        (header(), 3 * 4096, False),
        (header(), 3 * 4096 - 1, True),
        (header(page=1, pages=2), 131_072, False),
        (header(page=1, pages=2), 131_071, True),
        (header(page=32_768, pages=1), 32_768, False),
        (header(page=512, pages=300), 300 * 512 - 1, True),
        (header(pages=2**24), 4096, True),
        (header(versions=b"\1\1"), 4096, False),
        (header(versions=b"\2\1"), 4096, False),
        (header(), 100, True),
        (header()[:99], 99, False),
        (b"", 0, False),
    ],
)
def test_a_file_that_is_shorter_than_it_says_has_lost_its_log(
    tmp_path: Path, head: bytes, size: int, lost: bool
) -> None:
    """backends B-23, maintenance OP-16: it was copied while it was open, and without its log."""
    path = tmp_path / "copy.db"
    path.write_bytes(head.ljust(size, b"\0"))
    assert files.lost_log(path, lacks_tables=False) is lost
    in_wal_mode = len(head) == 100 and head[18:20] == b"\2\2"
    assert files.lost_log(path, lacks_tables=True) is in_wal_mode
    path.with_name("copy.db-wal").touch()
    assert files.lost_log(path, lacks_tables=True) is False


def test_a_file_that_cannot_be_read_has_not_lost_its_log(tmp_path: Path) -> None:
    assert files.lost_log(tmp_path / "missing.db", lacks_tables=True) is False
    assert files.lost_log(tmp_path, lacks_tables=True) is False


def test_the_log_of_a_link_is_beside_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.db").write_bytes(header())
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "a.db")
    assert files.lost_log(tmp_path / "link.db", lacks_tables=True)
    (tmp_path / "real" / "a.db-wal").touch()
    assert not files.lost_log(tmp_path / "link.db", lacks_tables=True)


def test_only_a_regular_file_is_there(tmp_path: Path) -> None:
    """backends B-9: SQLite would wait for ever at the other end of a FIFO."""
    (tmp_path / "a.db").touch()
    (tmp_path / "link").symlink_to("a.db")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    assert files.is_there(tmp_path / "a.db")
    assert files.is_there(tmp_path / "link")
    assert not files.is_there(tmp_path / "missing")
    with pytest.raises(NotADirectoryError):
        files.is_there(tmp_path / "a.db" / "below")
    for odd, follow in (("fifo", True), ("link", False), (".", True), ("loop", True)):
        with pytest.raises(OSError, match=r"expected a regular file, found|symbolic links"):
            files.is_there(tmp_path / odd, follow=follow)


def test_a_file_that_may_not_be_written_is_refused_by_name(tmp_path: Path) -> None:
    """backends B-8."""
    (tmp_path / "a.db").touch()
    files.refuse_unwritable(tmp_path / "a.db")
    with pytest.raises(PermissionError) as raised:
        files.refuse_unwritable(tmp_path / "missing.db")
    assert raised.value.filename == str(tmp_path / "missing.db")


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file in which the system names what is mounted."""
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(files, "_MOUNTS", str(path))
    files._type_of_mount.cache_clear()
    yield path
    files._type_of_mount.cache_clear()


@pytest.mark.parametrize("missing", ["mounts", "linux", "device"])
def test_a_file_system_that_nobody_tells_is_unknown(
    missing: str, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-23: which counts as local."""
    if missing != "mounts":
        mounts.write_text("" if missing == "device" else "1 0 0:5 / /proc rw - proc proc rw")
    monkeypatch.setattr(sys, "platform", "darwin" if missing == "linux" else "linux")
    assert files.kind_of_device(os.makedev(0, 5)) == "unknown"


def test_a_device_is_known_by_its_line_among_the_mounts(mounts: Path) -> None:
    """backends B-23."""
    mounts.write_text(
        "1 0 0:5 / /a rw - ext4 a rw\n2 0 0:51 / /b rw shared:7 - nfs4 server:/b rw\n3 0 0:51 / /c rw - other b rw\n"
    )
    assert files.kind_of_device(os.makedev(0, 51)) == "nfs4"


def test_a_file_of_another_device_than_its_mount_is_known_by_its_folder(
    mounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-110: as on btrfs, whose subvolumes have devices of their own."""
    mounts.write_text("51 0 0:5 / /a rw - ext4 a rw\n7 0 0:6 / /b rw - btrfs b rw\n")
    monkeypatch.setattr(files, "_DESCRIPTOR_FACTS", f"{tmp_path}/")
    (tmp_path / "3").write_text("pos:\t0\nflags:\t012000000\nmnt_id:\t7\nino:\t2\n")
    assert files.kind_of_device(os.makedev(0, 51)) == "unknown"
    assert files.kind_of_device(os.makedev(0, 51), 3) == "btrfs"


def test_a_mount_in_the_place_of_another_is_told_within_a_minute(mounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-23: the system gives the number of a device again."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    mounts.write_text("1 0 0:5 / /a rw - tmpfs a rw\n")
    assert files.kind_of_device(os.makedev(0, 5)) == "tmpfs"
    mounts.write_text("1 0 0:5 / /a rw - nfs4 a rw\n")
    now = 60.0
    assert files.kind_of_device(os.makedev(0, 5)) == "nfs4"


def test_a_failure_to_read_the_mounts_is_not_kept(mounts: Path) -> None:
    """backends B-23: such as for too many open files."""
    assert files.kind_of_device(os.makedev(0, 5)) == "unknown"
    mounts.write_text("1 0 0:5 / /a rw - nfs4 a rw\n")
    assert files.kind_of_device(os.makedev(0, 5)) == "nfs4"


def test_the_next_directory_is_asked_where_one_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    found = files.file_system(tmp_path / "loop" / "below" / "a.db")
    assert found == files.file_system(tmp_path / "a.db") != "unknown"
