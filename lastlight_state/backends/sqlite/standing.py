"""What lies beside a SQLite file, and which processes of this machine use it.

Another process looks: closing any descriptor of a file drops the locks that this process has on it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lastlight_state.backends.facts import Place
from lastlight_state.backends.sqlite import files

_WAL_MODE = "0202"
#: A look waits for nothing but a file system that does not answer.
_MOST_SECONDS = 30.0
#: Prints the two bytes of the header that say how the file is written, and the endings of what was left beside it: of
#: a journal with no lock of a writer, of a log with no lock of somebody who has opened it. Both are looked at twice, so
#: that one who comes or goes in between is seen. The locks are where SQLite's ``os.h`` puts them; a journal that begins
#: with zero is a finished one.
_LOOK = """
import fcntl, os, stat, struct, sys
path = sys.argv[1]
def is_locked(begin, length):
    if sys.platform == "linux":
        form, at, asked = "hhqqi", 0, (fcntl.F_WRLCK, 0, begin, length, 0)
    else:
        form, at, asked = "qqihhi", 3, (begin, length, 0, fcntl.F_WRLCK, 0, 0)
    answer = struct.unpack(form, fcntl.fcntl(held, fcntl.F_GETLK, struct.pack(form, *asked)))
    return answer[at] != fcntl.F_UNLCK
def begin_of(ending):
    try:
        beside = os.open(path + ending, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    return os.read(beside, 1) if stat.S_ISREG(os.fstat(beside).st_mode) else b""
def left():
    if begin_of("-journal") not in (b"", b"\\0") and not is_locked(0x40000001, 1):
        yield "-journal"
    if begin_of("-wal") and not is_locked(0x40000002, 510):
        yield "-wal"
held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
print(os.read(held, 20)[18:].hex() or "-", *sorted({*left()} & {*left()}))
"""


@dataclass(frozen=True)
class Standing:
    """How a file stands. ``in_wal_mode`` is what its header says, None for one that is empty.

    ``left`` are the endings of the files beside it that a writer left who died.
    """

    in_wal_mode: bool | None
    left: tuple[str, ...]


def standing_of(path: Path) -> Standing | None:
    """Return how a file stands that is no link; None where that cannot be told."""
    command = [sys.executable, "-I", "-S", "-c", _LOOK, str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command, check=True, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    mode, *left = done.stdout.split()
    return Standing(None if mode == "-" else mode == _WAL_MODE, tuple(left))


def place_of(path: Path) -> Place | None:
    """Return where a file lies, and what lies beside it that should not; None for a file that cannot be looked at."""
    path = files.real(path)
    standing = standing_of(path)
    if standing is None:
        return None
    name = files.file_system(path)
    log, index, journal = files.beside(path)
    unfit = [found for found in (log, index) if found.exists()] if standing.in_wal_mode is False else []
    left = {"-wal": log, "-journal": journal}
    return Place(
        file_system=name,
        is_remote=files.is_remote(name),
        in_wal_mode=bool(standing.in_wal_mode),
        left=tuple(left[ending] for ending in standing.left if left[ending] not in unfit),
        unfit=tuple(unfit),
    )
