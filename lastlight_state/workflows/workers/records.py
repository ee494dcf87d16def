"""The records of `workers`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Self

from lastlight_state.db.rows.records import Record


class WorkerStatus(Record):
    """One worker as it was last seen: a process that drives runs of its workflows.

    ``run_ids`` are the runs that the worker holds, ``slots`` the most that it drives at a time. ``app_versions`` are
    the versions of runs that it drives, None for all. If it does not look for work again until ``expires_at``, it
    counts as ended (``is_gone``).
    """

    name: str
    host: str
    pid: int
    workflow_names: tuple[str, ...]
    app_versions: tuple[str, ...] | None
    slots: int
    run_ids: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    expires_at: datetime
    is_gone: bool

    _computed: ClassVar[frozenset[str]] = frozenset({"run_ids", "is_gone"})

    @classmethod
    def of(cls, values: Any) -> Self:
        """Return the worker of a row. Whoever reads it sets ``run_ids`` and ``is_gone``."""
        versions = values["app_versions"]
        return super().of(
            {
                **values,
                "workflow_names": tuple(values["workflow_names"]),
                "app_versions": None if versions is None else tuple(versions),
                "run_ids": (),
                "is_gone": False,
            }
        )


class WaitingWorkflow(Record):
    """Runs of one workflow that have been free for more than a minute and that no worker has taken.

    ``runs`` is their number (at most 10,000 are counted). ``since`` is the time when the first of them, ``run_id``,
    became free. ``reason`` is ``unserved`` (no worker that serves the workflow was seen lately), ``version`` (no worker
    that serves it drives the version of the runs), ``programs`` (no worker was seen, and programs that take claims
    themselves hold other runs of it), ``slots`` (all slots are taken) or ``free`` (there are free slots). ``why`` is
    the reason as a sentence.
    """

    workflow_name: str
    reason: str
    why: str
    runs: int
    since: datetime
    run_id: str
