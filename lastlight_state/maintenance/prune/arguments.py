"""The policy of a prune, as callers give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lastlight_state.clock import exact_iso_text
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Row, Statement
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit
from lastlight_state.db.valid import words

# Places in an order of records by a time and a key, in the form that receipts keep. The time is, for example, when a
# record ended.

#: The time of a record, and its key.
Place = tuple[datetime, str]


#: The place before every record.
START: Place = (datetime(1, 1, 1, tzinfo=UTC), "")


def encode_place(place: Place) -> list[str]:
    """Convert a place in the sort order of records to JSON values."""
    return [exact_iso_text(place[0]), place[1]]


def read(value: list[str]) -> Place:
    """Convert JSON values to a place in the sort order of records."""
    moment, key = value
    return parse_time(moment), key


def bounded_terms(unit: Unit, boundary: Statement[Place], terms: Mapping[str, Any], **values: Any) -> Row:
    """Return the terms with the place ``until``. Records before this place are old enough, and not among the newest.

    ``boundary`` finds the ``age`` and the ``key`` of the record that has ``kept`` newer records.
    """
    until = read([terms["cutoff"], ""])
    if terms["keep_n"]:
        last_kept = unit.row(boundary, {"kept": terms["keep_n"] - 1, **values})
        until = START if last_kept is None else min(until, last_kept)
    return {**terms, "until": encode_place(until)}


# Records of prunes.

#: The names of line files and of their bytes, in counts beside tables.
LINE_FILES, LINE_BYTES = "line_files", "line_bytes"


class PrunePlan(Record):
    """The plan of a prune. Nothing is written for a plan.

    ``counts`` are rows by table, ``records`` the number of records (such as runs) and ``victims`` the ids of the first
    20, in the order of their end. ``protected`` is the number of records that are old enough but stay, by reason.
    ``counts`` also has ``line_files`` and ``line_bytes`` if log files would be removed.

    For the kinds ``exchange``, ``changes`` and ``journal``, a record is an inbox, a feed or a run that loses its oldest
    rows. For ``orphans`` it is an order or a message, the orders first.
    """

    kind: str
    cutoff: datetime
    records: int
    counts: Mapping[str, int]
    protected: Mapping[str, int]
    victims: tuple[str, ...]


#: Whether archived log files are removed, too.
WithLogs = Literal["no", "yes"]
WITH_LOGS = words(WithLogs)


@dataclass(frozen=True)
class PrunePolicy:
    """The policy of a prune: records of one kind that ended long enough ago and are not among the newest.

    ``kind`` is ``sessions`` (of conversations), ``runs``, ``executions`` (of no run), ``messaging``, ``fires``,
    ``exchange``, ``changes``, ``journal`` (of runs), ``cache`` (of results), ``checkpoints`` (of threads), ``states``,
    ``workers`` or ``orphans``. A record is removed only if it ended more than ``keep_days`` ago, is not among the
    ``keep_n`` that ended last, and nothing protects it. The age of a conversation's session counts from its last
    change, and running sessions count among the newest. None means the kind's default: 30 days and 100 records, for
    ``messaging`` 7 days and 0, for ``fires`` 35 days and 0. The age of a fire counts from its start; the last fire of
    a cron stays, and so does a running one.

    ``exchange`` and ``changes`` remove the oldest rows of each inbox or feed, and keep the newest ``keep_n`` of each, 0
    by default; the last row always stays. Their records and ``ids`` are the owners of inboxes, and sessions.

    The age of a cache entry counts from when it was stored. Expired entries are removed at any age, and ``keep_n``
    counts only the others. Threads of checkpoints are treated likewise, but by the age of their last change; a thread
    is removed with all its rows.

    States are removed ``keep_days`` after they have expired, 0 by default. A state that does not expire stays at any
    age. ``keep_n`` is refused. Workers are likewise removed ``keep_days`` after they have expired.

    ``journal`` removes rows of runs that a prune of ``runs`` would find old enough: events, signals, frames, tool calls
    and scores. The runs stay, with their last event and the frames needed for the last frame.

    ``orphans`` removes orders that no session or branch owns, and messages that nothing refers to. Their age counts
    from ``created_at``, and orphans younger than a day stay. ``keep_n`` is refused. Their ``ids`` are ids of orders and
    messages.

    ``agent-logs`` and ``run-logs`` are log files on this machine. The age of an agent session's log counts from the
    last change of any of its files, the age of a run's log from its last record. Their ``ids`` are sessions of agents,
    and runs.

    ``ids`` narrows the policy to at most 500 records, and never widens it. ``batch_rows`` is how many rows one
    transaction removes; a record is removed completely, even if it has more rows than that. After ``time_limit``
    seconds the prune stops between two batches, and can be resumed. With ``archive``, a folder, each run or session is
    written there as a bundle before it is removed. With ``with_logs="yes"`` as well, the agents' log files in the
    bundle are removed after their record, unless another record names them or they have changed since the cutoff.
    """

    kind: str = "sessions"
    keep_days: int | None = None
    keep_n: int | None = None
    ids: Sequence[str] | None = None
    batch_rows: int = 20_000
    time_limit: float | None = None
    archive: str | Path | None = None
    with_logs: WithLogs = "no"
