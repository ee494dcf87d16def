"""Packs and deletes the logs of ended runs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from lastlight_state.errors import BackendUnavailable, Conflict, StateError
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import acquire as lock_lines
from lastlight_state.files.run_log import storage
from lastlight_state.files.run_log.runs.heads import Heads, PruneReport, end_of
from lastlight_state.files.run_log.runs.lists import RunFilter, RunLists, has_ended
from lastlight_state.files.run_log.tree import RunFile, RunTree, open_run

_UNFINISHED = ".tmp"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Upkeep:
    """Packs and deletes logs."""

    def __init__(self, tree: RunTree, heads: Heads, lists: RunLists, lock_timeout: float) -> None:
        self._tree = tree
        self._heads = heads
        self._lists = lists
        self._lock_timeout = lock_timeout

    def pack(self, run_id: str) -> bool:
        """Replace a log by a gzip file. Returns False if it is packed already."""
        self._tree.get(run_id)
        with self._alone(run_id):
            file = self._tree.get(run_id)
            if file.is_packed:
                return False
            self._pack(file)
            return True

    def prune(self, before: datetime, session_id: str | None, *, dry_run: bool) -> PruneReport:
        """Delete the logs of runs that ended before a time. With ``dry_run``, only list them."""
        found, skipped = self._lists.ended_runs(RunFilter(session_id, until=before), before)
        gone: list[tuple[str, int]] = []
        for file in found:
            size = size_of(file) if dry_run else self.remove(file, before)
            if size is None:
                skipped += 1
            else:
                gone.append((file.run_id, size))
        return PruneReport(
            run_ids=tuple(run_id for run_id, _ in gone),
            size_bytes=sum(size for _, size in gone),
            skipped=skipped,
            dry_run=dry_run,
        )

    def remove(self, file: RunFile, before: datetime) -> int | None:
        """Delete a log.

        Returns the bytes that it had, or None if the run has not ended or the log cannot be deleted.
        """
        try:
            with self._alone(file.run_id):
                now = self._tree.get(file.run_id)
                if not has_ended(self._heads.entry(now), before):  # late records came after the first check
                    return None
                size = size_of(now) or 0
                with files.open_directory(now.path.parent, base=files.ROOT) as (held, _):
                    for name in now.names:
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=held)
                    files.sync(held)
                return size
        except (StateError, OSError):
            return None

    def _pack(self, file: RunFile) -> None:
        target = file.path.name + storage.SUFFIX
        try:
            with files.open_directory(file.path.parent, base=files.ROOT) as (held, _):
                plain = open_run(file)
                try:
                    lock_lines(plain, file.path, self._lock_timeout)  # for programs that append without the run's lock
                    _refuse_unended(plain, file)
                    _remove_leftovers(held, file.path.parent, target)
                    _pack_into(held, target, plain, file.path)
                    files.sync(held)
                    os.unlink(file.path.name, dir_fd=held)
                    files.sync(held)
                finally:
                    os.close(plain)
        except OSError as error:
            raise files.failure(error, file.path) from error

    @contextmanager
    def _alone(self, run_id: str) -> Iterator[None]:
        """Hold the run's lock for the block, as the run's writer does. Raises `Conflict` while a writer is alive."""
        held = storage.try_acquire(self._tree.lock_path(run_id))
        if held is None:
            raise Conflict(f"run {run_id!r} is being written", run_id=run_id)
        with held:
            yield


def _refuse_unended(descriptor: int, file: RunFile) -> None:
    if not end_of(descriptor, file, os.fstat(descriptor).st_size).is_ended:
        raise Conflict(f"run {file.run_id!r} has not ended", run_id=file.run_id)


def _pack_into(held: int, target: str, plain: int, path: Path) -> None:
    """Write the packed log under a temporary name, read it back to compare it, and rename it."""
    temporary = _temporary(target)
    descriptor = os.open(temporary, _NEW, files.PRIVATE_FILE, dir_fd=held)
    try:
        storage.pack(plain, descriptor)
        _refuse_other_bytes(plain, descriptor, path)
        os.rename(temporary, target, src_dir_fd=held, dst_dir_fd=held)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=held)
        raise
    finally:
        os.close(descriptor)


def _refuse_other_bytes(plain: int, descriptor: int, path: Path) -> None:
    if not storage.is_same(plain, descriptor):
        raise BackendUnavailable(f"{path}: what was packed does not read back", path=str(path))


def _temporary(target: str) -> str:
    return f".{target}.{secrets.token_hex(4)}{_UNFINISHED}"


def _remove_leftovers(held: int, directory: Path, target: str) -> None:
    """Delete temporary files that a killed packing left. The caller holds the lock, so nobody else packs this run."""
    for left in directory.iterdir():
        if left.name.startswith(f".{target}.") and left.suffix == _UNFINISHED:
            with suppress(FileNotFoundError):
                os.unlink(left.name, dir_fd=held)


def size_of(file: RunFile) -> int | None:
    """Return the bytes of a log on disk; None if it has vanished."""
    try:
        return file.path.lstat().st_size
    except OSError:
        return None
