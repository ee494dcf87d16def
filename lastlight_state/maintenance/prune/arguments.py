"""The policy of a prune: what callers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lastlight_state.db.valid import words

#: Whether log files go with what is archived.
WithLogs = Literal["no", "yes"]
WITH_LOGS = words(WithLogs)


@dataclass(frozen=True)
class PrunePolicy:
    """What is to be removed: records of one kind that ended long enough ago and are not among the newest.

    ``kind`` is ``sessions`` (of conversations), ``runs``, ``executions`` (of no run), ``messaging``, ``fires``,
    ``exchange``, ``changes``, ``journal`` (of runs), ``cache`` (of results), ``checkpoints`` (of threads), ``states``
    or ``orphans``. A record is removed only if it ended more than ``keep_days`` ago, is not among the ``keep_n`` that
    ended last, and nothing protects it; a session of a conversation counts from its last change, and running ones count
    among the last. None means the kind's own: 30 days and 100 records, for ``messaging`` 7 days and 0, for ``fires`` 35
    days and 0.

    Of ``exchange`` and ``changes`` the oldest rows of each inbox or feed go, and ``keep_n`` of each stay, 0 by default;
    the last one always stays. Their records and ``ids`` are the owners of inboxes, and sessions.

    Entries of the cache count from when they were stored; those that have expired go at any age, and ``keep_n`` counts
    the others. Threads of checkpoints go likewise, but count from their last change; a thread goes with everything of
    it.

    States go when they have been over for ``keep_days``, 0 by default: one that does not expire stays at any age, and
    ``keep_n`` is refused.

    Of ``journal`` the records are runs, which stay: of those that a prune of ``runs`` would find old enough events,
    signals, frames, tool calls and scores go, but for the last event and what the last frame is rebuilt from.

    Of ``orphans`` orders go that no session or branch owns, and messages that nothing refers to, by the age of their
    ``created_at`` alone and never younger than a day: ``keep_n`` is refused. Their ``ids`` are of orders and messages.

    ``agent-logs`` and ``run-logs`` are log files on this machine: of agents' sessions, which count from the last change
    of any of their files, and of runs, from their last record. Their ``ids`` are sessions of agents, and runs.

    ``ids`` narrows this to at most 500 records, and never widens it. ``batch_rows`` is how many rows one transaction
    removes; a record is removed whole, also if it alone has more. After ``time_limit`` seconds the prune stops between
    two batches, and can be resumed. With ``archive``, a folder, each run or session is written there as a bundle before
    it is removed; and with ``with_logs="yes"`` beside it, the log files of agents that are in the bundle are removed
    after their record, unless another record names them or they have changed since the cutoff.
    """

    kind: str = "sessions"
    keep_days: int | None = None
    keep_n: int | None = None
    ids: Sequence[str] | None = None
    batch_rows: int = 20_000
    time_limit: float | None = None
    archive: str | Path | None = None
    with_logs: WithLogs = "no"
