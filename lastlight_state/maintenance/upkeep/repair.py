"""``store.maintenance.repair``: scans damaged line files, ends torn tails, writes clean copies, replaces files.

Works on files only and needs no database. A repair never removes or overwrites a byte: a damaged file stays, under its
own name or a second name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import cast

from lastlight_state.clock import Clock, iso_text
from lastlight_state.db.news.listeners import storable
from lastlight_state.db.rows.records import Record
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue, NotFound, StateError, UnsafePath
from lastlight_state.files.agent_log.records import LOG_LINES
from lastlight_state.files.jsonl import files, repair
from lastlight_state.files.jsonl.recovery import Accepts
from lastlight_state.files.jsonl.repair import Salvage
from lastlight_state.files.jsonl.sections import Account
from lastlight_state.files.run_log import paths as run_paths, records as run_lines, storage
from lastlight_state.maintenance.shared import jobs
from lastlight_state.receipts import Receipts
from lastlight_state.special_files import mismatch_at

# Records of scans and repairs of line files.


class DamagedPart(Record):
    """A part of a line file: damage, or a record that was found in a damaged line."""

    offset: int
    length: int
    kind: str


class LineFileScan(Record):
    """The contents of a line file: number of sections and of bytes, by kind. The bytes add up to the file's size.

    Kinds: ``record``; ``recovered`` and ``glued``, which are records in damaged lines; ``blank``; ``torn_tail``; and
    damage: ``torn``, ``nul_bytes``, ``bad_utf8``, ``bad_json``, ``not_object``, ``oversize``. ``samples`` are the first
    20 parts that are not sound. ``problem`` is the reason why a file below a directory could not be read. Such a file
    is not ``sound``, and its sections are unknown.
    """

    path: Path
    size: int
    sound: bool
    sections: Mapping[str, int]
    section_bytes: Mapping[str, int]
    samples: tuple[DamagedPart, ...]
    problem: str | None = None


class Repaired(Record):
    """The result of a repair. For a file without damage, ``copy_path`` is None and nothing is written.

    ``copy_path`` is the path of the clean copy. For a replaced file it is the file's own path, ``damaged`` is the
    second name of the old file, and ``receipt_id`` is the receipt, if there is a database. ``rejects`` is the file with
    all bytes that belong to no record, or None if there are none.
    """

    scan: LineFileScan
    copy_path: Path | None
    rejects: Path | None
    damaged: Path | None
    receipt_id: str | None = None


LINES = ".jsonl"
COPY = ".repaired.jsonl"
#: How many damaged parts of a file a scan names at most.
SAMPLES = 20

_log = logging.getLogger("lastlight_state.maintenance")


class Repair:
    """``store.maintenance.repair``. ``roots`` are the directories of the agent's logs and of the logs of runs.

    ``receipts`` records replaced files. Without a database it is None, and nothing but the files is written.
    """

    def __init__(self, roots: Sequence[Path], clock: Clock, receipts: Receipts | None = None) -> None:
        self._roots = roots
        self._clock = clock
        self._receipts = receipts

    def scan(self, path: Path | str | None = None) -> tuple[LineFileScan, ...]:
        """Classify every byte of a line file, or of all line files below a directory. The default is all logs.

        Writes nothing. Below a directory, links, clean copies and temporary files are skipped, and a file that cannot
        be read has a ``problem``. Raises `NotFound`, `UnsafePath` for a link, and `BackendUnavailable` for a path that
        cannot be read.
        """
        return tuple(scans_below(self._roots) if path is None else scans(Path(path)))

    def seal(self, path: Path | str) -> bool:
        """End a torn tail with a newline, under the lock of the file's writers. Returns True if there was one.

        This is the only change ever made to a file in use. The log of a run whose writer is alive is not changed,
        because that writer's next record ends the tail. May be repeated. Raises `BackendBusy`, and the errors of
        `scan`.
        """
        path = Path(path)
        if not path.is_symlink() and not path.is_file():
            raise NotFound("line file", str(path), reason=mismatch_at(path))
        path = files.real(path.parent) / path.name  # resolve links of folders, as `salvage` does
        return _liveness(path) != "held" and repair.seal(path)

    def salvage(self, path: Path | str, *, to: Path | str | None = None, replace: bool = False) -> Repaired:
        """Write a clean copy of a damaged file: every whole or recovered record, byte for byte, one to a line.

        The copy is ``to``, or ``<name>.repaired.jsonl`` next to the file. All other bytes go to ``<to>.rejects``, so
        every byte is in one of the two. With ``replace``, the copy takes the file's path while its writers wait. The
        damaged file stays under a second name, ``<name>.jsonl.damaged-<time>``, and a receipt records the replacement.
        A file without damage is not changed.

        Raises `AlreadyExists` if the target exists, `LostRace` if another call replaces the file at the same time,
        `Conflict` for the log of a run whose writer is or may be alive, and the errors of `seal`.
        """
        path = Path(path)
        if replace:
            if to is not None:
                raise InvalidValue("to", "must be None with replace=True: the copy takes the file's own path")
            path = files.real(path.parent) / path.name  # resolve a link to the day's folder, which would hide the run
            _refuse_living(path)
            return self._replace_with_receipt(path) if self._receipts is not None else self._replace_file(path)
        target = path.with_name(path.name.removesuffix(LINES) + COPY) if to is None else Path(to)
        with _translated_errors(path):
            return _repair_result(path, repair.salvage(path, _accepts(path), to=target))

    def _replace_file(self, path: Path) -> Repaired:
        suffix = f".damaged-{_stamp(self._clock.now())}"
        with _translated_errors(path):
            return _repair_result(path, repair.replace(path, _accepts(path), suffix=suffix))

    def _replace_with_receipt(self, path: Path) -> Repaired:
        """Replace the file. A receipt is created before the first change. A file without damage gets no receipt."""
        with _translated_errors(path):
            account = repair.scan(path, _accepts(path))
        if account.is_sound:
            return _repair_result(path, Salvage(account))
        receipts = cast("Receipts", self._receipts)
        policy = {"path": storable(str(path.absolute()), 4_000)}
        receipt = receipts.begin("repair", scope=storable(path.name, 200), policy=policy, owner=jobs.owner())
        with jobs.interruptible(receipts, lambda: receipt, again="the same command"):
            done = self._replace_file(path)
            try:
                receipts.finish(receipts.step(receipt, counts=done.scan.sections, cursor=_names(done)))
            except StateError:
                _log.warning(
                    "%s was replaced, but its receipt %s could not be finished", path, receipt.id, exc_info=True
                )
        return done.model_copy(update={"receipt_id": receipt.id})


def scans_below(roots: Sequence[Path]) -> Iterator[LineFileScan]:
    """Yield the scans of all line files below these directories. Raises `NotFound` if none of them exists."""
    there = [root for root in roots if os.path.lexists(root)]
    for root in there or roots[:1]:
        yield from scans(root)


def scans(path: Path) -> Iterator[LineFileScan]:
    """Yield the scans of `Repair.scan`, one for each file.

    An unreadable file in a directory is yielded with its ``problem``.
    """
    unreadable: list[OSError] = []
    for found in line_files(path, unreadable.append):
        try:
            with _translated_errors(found):
                account = repair.scan(found, _accepts(found))
        except (NotFound, UnsafePath, BackendUnavailable) as error:
            if found == path:
                raise
            if os.path.lexists(found):
                reason = error.reason if isinstance(error, NotFound) else None
                yield _unread(found, reason or str(error))
            continue
        yield _scan_of(found, account)
    for failed in unreadable:
        yield _unread(Path(failed.filename), failed.strerror or str(failed))


def line_files(path: Path, unreadable: Callable[[OSError], object] = lambda _: None) -> Iterator[Path]:
    """Yield the file, or the line files below the directory, in a fixed order. Raises `NotFound`.

    ``unreadable`` is called with the error of each directory that cannot be read.
    """
    with _translated_errors(path):
        is_directory = files.is_directory(path)
    if not is_directory:
        if not os.path.lexists(path):
            raise NotFound("line file", str(path), reason=mismatch_at(path))
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=unreadable):
        folders.sort()
        for name in sorted(names):
            found = Path(folder, name)
            if name.endswith(LINES) and not name.startswith(".") and not name.endswith(COPY) and not found.is_symlink():
                yield found


def _run_of(path: Path) -> str | None:
    """Return the id of the run whose log a file is, or None for other line files.

    Logs of runs are in folders of days.
    """
    return run_paths.run_of(path.name) if run_paths.day_parts_of(path) else None


def _accepts(path: Path) -> Accepts:
    """Return a function that tells a whole record in a damaged line of this file from a part of a record."""
    run_id = _run_of(path)
    return LOG_LINES.accepts if run_id is None else run_lines.accepts(run_id)


def _liveness(path: Path) -> storage.Liveness:
    """Return whether the writer of this run's log is alive. The path must have no links."""
    run_id = _run_of(path)
    return "free" if run_id is None else storage.liveness(path.parents[3] / run_paths.LOCKS / run_id)


def _refuse_living(path: Path) -> None:
    """Raise `Conflict` unless the log certainly has no writer. The path must have no links."""
    found = _liveness(path)
    if found != "free":
        has = "has" if found == "held" else "may have"
        raise Conflict(f"run {_run_of(path)!r} {has} a living writer: its log is not replaced", code="run_open")


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    with files.translate_errors(path):
        try:
            yield
        except FileNotFoundError:
            raise NotFound("line file", str(path), reason=mismatch_at(path)) from None


def _names(done: Repaired) -> dict[str, str | None]:
    """Return the names of the files that a replacement writes, for its receipt."""
    return {
        name: None if path is None else storable(path.name, 400)
        for name, path in (("damaged", done.damaged), ("rejects", done.rejects))
    }


def _stamp(moment: datetime) -> str:
    """Return a time in a form that can be part of a file name."""
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


def _repair_result(path: Path, done: Salvage) -> Repaired:
    return Repaired(scan=_scan_of(path, done.account), copy_path=done.copy, rejects=done.rejects, damaged=done.damaged)
