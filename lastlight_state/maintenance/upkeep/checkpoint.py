"""``store.maintenance.checkpoint``: moves the write-ahead log of a SQLite file into the file."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.upkeep.records import Checkpoint

Mode = Literal["TRUNCATE", "PASSIVE", "RESTART", "FULL"]
MODES = valid.words(Mode)


class Checkpoints(Repository):
    """Moves the write-ahead log of a SQLite file into the file: ``store.maintenance.checkpoint``."""

    def run(self, mode: Mode = "TRUNCATE") -> Checkpoint:
        """Move the log into the database; with ``TRUNCATE``, also free the log's space.

        If a reader blocks the checkpoint, no error is raised: ``busy`` is True, and a later call does the rest. For
        databases without such a log, ``applicable`` is False. With SQLite versions that may lose a commit during a
        checkpoint, writers wait meanwhile and the log keeps a page. In that case, a writer that does not release its
        lock causes `BackendBusy`.
        """
        valid.word("mode", mode, MODES)
        before = self._wal_bytes()

        def work(unit: Unit) -> tuple[bool, int, int] | None:
            return unit.backend.checkpoint(unit, mode)

        done = self._apart(work)
        busy, log, brought = done or (False, 0, 0)
        return Checkpoint(
            applicable=done is not None,
            busy=busy,
            log_pages=log,
            checkpointed_pages=brought,
            wal_bytes_before=before,
            wal_bytes_after=self._wal_bytes(),
        )

    def _wal_bytes(self) -> int:
        logs = [path for path in self._backend.files if path.name.endswith("-wal") and path.exists()]
        return sum(path.stat().st_size for path in logs)
