"""What is told about runs without reading them whole."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from lastlight_state.db.records import Page, Record
from lastlight_state.run_log.reading import Damage
from lastlight_state.run_log.records import RunRecord
from lastlight_state.run_log.words import RunState


class RunEntry(Record):
    """A run in a list: from the first lines of its log and from its last.

    ``state`` is ``ended`` with a ``run.end``; without one ``running`` while its writer lives, else ``crashed``.
    ``outcome`` is that of ``run.end``, ``input_preview`` has at most 200 characters. ``size_bytes`` are those of the
    log, also where it is packed. ``schema_version`` is None without a header.
    """

    run_id: str
    session_id: str | None
    started_at: datetime
    last_ts: datetime | None
    state: RunState
    outcome: str | None
    model_name: str | None
    input_preview: str | None
    size_bytes: int
    schema_version: Any
    path: Path


class RunPage(Page[RunEntry]):
    """A page of runs. ``skipped`` counts logs that could not be opened."""

    skipped: int = 0


class PruneReport(Record):
    """The logs that were removed, or would be with ``dry_run``, and their bytes on disk.

    ``skipped`` counts logs that could not be read, and those that were being written.
    """

    run_ids: tuple[str, ...]
    size_bytes: int
    skipped: int
    dry_run: bool


class TailChunk(Record):
    """New records of a run. Pass ``cursor`` as ``after`` for the next ones.

    ``live`` says whether the run's writer lives, ``ended`` whether the log has its ``run.end``. ``at_end``: there was
    nothing more. ``reset``: the cursor was of another file, or of one that was cut, so this begins at the start.
    """

    records: tuple[RunRecord, ...]
    cursor: str
    live: bool
    ended: bool
    at_end: bool
    reset: bool
    damage: tuple[Damage, ...] = ()
