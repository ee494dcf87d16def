"""Checks of run logs, and clean copies of damaged logs."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from lastlight_state.db.gate import check_arguments
from lastlight_state.errors import Conflict, InvalidValue, NotFound
from lastlight_state.files.jsonl import files, repair
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.checks.findings import Findings, Report, Salvaged
from lastlight_state.files.run_log.reading import RunReading
from lastlight_state.files.run_log.records import accepts
from lastlight_state.files.run_log.tree import RunFile, RunTree


class Checks:
    """The checks of run logs: ``store.run_log.checks``."""

    def __init__(self, tree: RunTree) -> None:
        self._tree = tree

    @check_arguments
    def validate(self, run: str | Path) -> Report:
        """Check a log, which is given by its run or its path. Reads the whole log, and writes nothing.

        Raises `NotFound`.
        """
        file = self._file_at(run) if isinstance(run, Path) else self._tree.get(run)
        return Findings(RunReading(self._tree, file)).report(paths.day_parts_of(file.path))

    @check_arguments
    def salvage(self, run_id: str, *, to: Path) -> Salvaged:
        """Write the whole and recovered records of a damaged log to ``to``, byte for byte, one per line.

        Every other byte goes to ``<to>.rejects``. The log is not changed; a sound log is not copied. Raises `NotFound`,
        `Conflict` for a packed log, `AlreadyExists` for an existing target, `BackendUnavailable`.
        """
        file = self._tree.get(run_id)
        if file.is_packed:
            raise Conflict(f"run {run_id!r} is packed", run_id=run_id)
        try:
            done = repair.salvage(file.path, accepts(run_id), to=to)
        except FileNotFoundError:
            raise NotFound(paths.RUN, run_id) from None
        except OSError as error:
            raise files.failure(error, to) from error
        return Salvaged(
            run_id=run_id,
            path=file.path,
            copy_path=done.copy,
            rejects=done.rejects,
            sections=dict(done.account.sections),
            section_bytes=dict(done.account.bytes),
        )

    def _file_at(self, path: Path) -> RunFile:
        run_id = paths.run_of(path.name)
        if run_id is None:
            raise InvalidValue("run", "must be a file <run id>.jsonl or <run id>.jsonl.gz")
        parts = paths.day_parts_of(path)
        day = paths.day_of(parts) if parts else None
        return RunFile(run_id, day or date.min, path.absolute(), 0)
