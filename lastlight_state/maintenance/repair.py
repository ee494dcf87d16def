"""``store.maintenance.repair``: scans damaged line files, ends torn tails, writes clean copies, replaces files.

Works on files only and needs no database. No byte is ever removed or overwritten: a damaged file stays, under its own
name or a second one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from lastlight_state.agent_log.records import LOG_LINES
from lastlight_state.clock import Clock, iso_text
from lastlight_state.errors import BackendUnavailable, InvalidValue, NotFound, UnsafePath
from lastlight_state.jsonl import files, repair
from lastlight_state.jsonl.repair import Salvage
from lastlight_state.jsonl.sections import Account
from lastlight_state.maintenance.repair_records import DamagedPart, LineFileScan, Repaired

LINES = ".jsonl"
COPY = ".repaired.jsonl"
#: How many damaged parts of a file a scan names.
SAMPLES = 20


class Repair:
    """``store.maintenance.repair``. ``root`` is the directory of the agent's logs."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock

    def scan(self, path: Path | str | None = None) -> tuple[LineFileScan, ...]:
        """Classify every byte of a line file, or of all line files below a directory; by default the agent's logs.

        Writes nothing. Below a directory, links, clean copies and temporary files are passed over, and a file that
        cannot be read has a ``problem``. Raises `NotFound`, `UnsafePath` for a link, `BackendUnavailable` for a path
        that cannot be read.
        """
        return tuple(scans(self._root if path is None else Path(path)))

    def seal(self, path: Path | str) -> bool:
        """End a torn tail with a newline, under the lock of the file's writers; returns whether there was one.

        This is the only change ever made to a file in use. May be repeated. Raises `BackendBusy`, and as `scan`.
        """
        path = Path(path)
        if not path.is_symlink() and not path.is_file():
            raise NotFound("line file", str(path))
        return repair.seal(path)

    def salvage(self, path: Path | str, *, to: Path | str | None = None, replace: bool = False) -> Repaired:
        """Write a clean copy of a damaged file: every whole or recovered record, byte for byte, one to a line.

        The copy is ``to``, or ``<name>.repaired.jsonl`` beside the file. All other bytes go to ``<to>.rejects``, so
        every byte is in one of the two. With ``replace`` the copy takes the file's path while its writers wait, and the
        damaged file keeps a second name, ``<name>.jsonl.damaged-<time>``. A sound file is left as it is. Raises
        `AlreadyExists` if the target exists, `LostRace` if another call replaces the file at the same time, and as
        `seal`.
        """
        path = Path(path)
        if replace:
            if to is not None:
                raise InvalidValue("to", "must be None with replace=True: the copy takes the file's own path")
            suffix = f".damaged-{_stamp(self._clock.now())}"
            with _translated(path):
                return _repaired(path, repair.replace(path, LOG_LINES.accepts, suffix=suffix))
        target = path.with_name(path.name.removesuffix(LINES) + COPY) if to is None else Path(to)
        with _translated(path):
            return _repaired(path, repair.salvage(path, LOG_LINES.accepts, to=target))


def scans(path: Path) -> Iterator[LineFileScan]:
    """The scans of `Repair.scan`, one file after the other. In a directory, what cannot be read is told and passed."""
    unreadable: list[OSError] = []
    for found in line_files(path, unreadable.append):
        try:
            with _translated(found):
                account = repair.scan(found, LOG_LINES.accepts)
        except (NotFound, UnsafePath, BackendUnavailable) as error:
            if found == path:
                raise
            if os.path.lexists(found):
                yield _unread(found, "not a regular file" if isinstance(error, NotFound) else str(error))
            continue
        yield _scan_of(found, account)
    for failed in unreadable:
        yield _unread(Path(failed.filename), failed.strerror or str(failed))


def line_files(path: Path, unreadable: Callable[[OSError], object] = lambda _: None) -> Iterator[Path]:
    """The file, or the line files below the directory, in a fixed order. Raises `NotFound`.

    Directories that cannot be read are given to ``unreadable``.
    """
    with _translated(path):
        is_directory = path.is_dir()
    if not is_directory:
        if not os.path.lexists(path):
            raise NotFound("line file", str(path))
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=unreadable):
        folders.sort()
        for name in sorted(names):
            found = Path(folder, name)
            if name.endswith(LINES) and not name.startswith(".") and not name.endswith(COPY) and not found.is_symlink():
                yield found


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFound("line file", str(path)) from None
    except OSError as error:
        raise files.failure(error, path) from error


def _stamp(moment: datetime) -> str:
    """A time as part of a file's name."""
    return iso_text(moment).replace("-", "").replace(":", "")


def _scan_of(path: Path, account: Account) -> LineFileScan:
    return LineFileScan(
        path=path,
        size=account.size,
        sound=account.is_sound,
        sections=dict(account.sections),
        section_bytes=dict(account.bytes),
        samples=tuple(DamagedPart(**part._asdict()) for part in account.parts[:SAMPLES]),
    )


def _unread(path: Path, problem: str) -> LineFileScan:
    return LineFileScan(path=path, size=0, sound=False, sections={}, section_bytes={}, samples=(), problem=problem)


def _repaired(path: Path, done: Salvage) -> Repaired:
    return Repaired(scan=_scan_of(path, done.account), copy_path=done.copy, rejects=done.rejects, damaged=done.damaged)
