"""Line files of bundles: found for agents' sessions, and put where a store looks for them.

Files are written under temporary names before the rows, and get their own after the commit.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from lastlight_state.agent_log.paths import LOG_SUFFIX, RAW, SUBAGENTS, is_safe_id
from lastlight_state.errors import AlreadyExists
from lastlight_state.jsonl import places
from lastlight_state.jsonl.files import make_directory, translated
from lastlight_state.maintenance.backup.line_copies import whole
from lastlight_state.maintenance.backup.records import LINES
from lastlight_state.maintenance.bundles.archive import link
from lastlight_state.maintenance.bundles.opened import OpenBundle, damaged
from lastlight_state.maintenance.bundles.records import BundlePart
from lastlight_state.settings import Settings

_CHUNK = 1024 * 1024
#: Endings of files that are no part of a log: what writers have not finished, and locks.
UNFINISHED = (".tmp", ".lock")
#: A file that is written, and where it goes.
Staged = tuple[Path, Path]
#: A log of a bundle that is not there: the part, its name here, and where it goes.
Missing = tuple[BundlePart, str, Path]


def found(settings: Settings, session_ids: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """The files of these agents' sessions, with their names in a bundle, in one order."""
    root = settings.agent_sessions
    for session_id in sorted({one for one in session_ids if is_safe_id(one)}):
        inner = (f"{session_id}/{folder}/*" for folder in (RAW, SUBAGENTS))
        for pattern in (session_id + LOG_SUFFIX, *inner):
            for path in sorted(root.glob(f"projects/*/{pattern}")):
                if path.is_file() and not path.is_symlink() and not path.name.endswith(UNFINISHED):
                    yield f"{LINES[0]}/{path.relative_to(root).as_posix()}", path


def session_of(name: str) -> str | None:
    """The agent's session to whose log a name in a bundle belongs; None for any other name."""
    if not name.startswith(f"{LINES[0]}/"):
        return None
    _, _, session, *rest = PurePosixPath(name).relative_to(LINES[0]).parts
    if rest:
        return session
    return session.removesuffix(LOG_SUFFIX) if session.endswith(LOG_SUFFIX) else None


def content(path: Path) -> Iterator[bytes]:
    """The bytes of a file that may be written to meanwhile; of line files the whole lines. None if it is gone."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        left = file.seek(0, os.SEEK_END)
        if path.name.endswith(LOG_SUFFIX):
            left = whole(path, left)
        file.seek(0)
        while chunk := file.read(min(left, _CHUNK)):
            left -= len(chunk)
            yield chunk


def missing(settings: Settings, bundle: OpenBundle, *, keeps: bool, renamed: Callable[[str], str]) -> list[Missing]:
    """The logs that are not there. Raises `AlreadyExists` for one that is there otherwise."""
    roots = dict(zip(LINES, settings.line_directories, strict=True))
    wanted: list[Missing] = []
    for part in bundle.logs:
        name = renamed(part.name)
        inside = next(inside for inside in LINES if name.startswith(f"{inside}/"))
        path = roots[inside] / name.removeprefix(f"{inside}/")
        if any(places.component_problem(step) for step in path.relative_to(roots[inside]).parts):
            raise damaged(part.name, "is not the name of a log")
        if not os.path.lexists(path):
            wanted.append((part, name, path))
        elif not keeps and not _is_equal(path, part):
            raise AlreadyExists("file", str(path), problem="is there with other contents")
    return wanted


@contextmanager
def staged(settings: Settings, bundle: OpenBundle, wanted: Sequence[Missing]) -> Iterator[list[Staged]]:
    """Write these logs under temporary names. They are removed at the end, whether `put` named them or not."""
    made: list[Staged] = []
    with translated(settings.state_dir):
        try:
            for part, _, path in wanted:
                base = next(root for root in settings.line_directories if path.is_relative_to(root))
                make_directory(base)
                make_directory(path.parent, base=base)
                made.append((path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp"), path))
                _write(made[-1][0], bundle.chunks(part))
            yield made
        finally:
            for temporary, _ in made:
                with suppress(FileNotFoundError):
                    temporary.unlink()


def put(made: Sequence[Staged]) -> None:
    """Give the files their names."""
    for temporary, path in made:
        link(temporary, path)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _is_equal(path: Path, part: BundlePart) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != part.size_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256
