"""The policy of a prune: what callers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from lastlight_state.clock import exact_iso_text
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Row, Statement
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit
from lastlight_state.db.valid import words

# Places in an order of records by a time and a key, such as that of their ends; as receipts keep them.

#: The time of a record, and its key.
Place = tuple[datetime, str]


class Ended(TypedDict):
    """A record, and the time of its place."""

    key: str
    age: datetime


#: Before every record.
START: Place = (datetime(1, 1, 1, tzinfo=UTC), "")


def written(place: Place) -> list[str]:
    """Return a place as JSON."""
    return [exact_iso_text(place[0]), place[1]]


def read(value: list[str]) -> Place:
    """Return a place that was `written`."""
    moment, key = value
    return parse_time(moment), key


def bounded(unit: Unit, boundary: Statement[Ended], terms: Mapping[str, Any], **values: Any) -> Row:
    """Return the terms with the place ``until`` which records may go: old enough, and not among the newest.

    ``boundary`` finds the ``age`` and the ``key`` of the record before which ``kept`` others are newer.
    """
    until = read([terms["cutoff"], ""])
    if terms["keep_n"]:
        last_kept = unit.row(boundary, {"kept": terms["keep_n"] - 1, **values})
        until = START if last_kept is None else min(until, (last_kept["age"], last_kept["key"]))
    return {**terms, "until": written(until)}


# Records of prunes.

#: How the counts of plans and receipts name line files, and their bytes, beside the rows of tables.
LINE_FILES, LINE_BYTES = "line_files", "line_bytes"


class PrunePlan(Record):
    """The plan of a prune as of now, for which nothing is written.

    ``counts`` are rows by table, ``records`` the number of records (such as runs) and ``victims`` the ids of the first
    20, in the order of their end. ``protected`` says how many records are old enough and stay, by the reason why.
    ``counts`` has ``line_files`` and ``line_bytes``, too, where log files would go.
    Of the kinds ``exchange``, ``changes`` and ``journal`` a record is an inbox, a feed or a run that loses its oldest
    rows; of ``orphans`` it is an order or a message, the orders first.
    """

    kind: str
    cutoff: datetime
    records: int
    counts: Mapping[str, int]
    protected: Mapping[str, int]
    victims: tuple[str, ...]


#: Whether log files go with what is archived.
WithLogs = Literal["no", "yes"]
WITH_LOGS = words(WithLogs)


@dataclass(frozen=True)
class PrunePolicy:
    """The policy of a prune: records of one kind that ended long enough ago and are not among the newest.

    ``kind`` is ``sessions`` (of conversations), ``runs``, ``executions`` (of no run), ``messaging``, ``fires``,
    ``exchange``, ``changes``, ``journal`` (of runs), ``cache`` (of results), ``checkpoints`` (of threads), ``states``,
    ``workers`` or ``orphans``. A record is removed only if it ended more than ``keep_days`` ago, is not among the
    ``keep_n`` that ended last, and nothing protects it; a session of a conversation counts from its last change, and
    running ones count among the last. None means the kind's own: 30 days and 100 records, for ``messaging`` 7 days and
    0, for ``fires`` 35 days and 0.

    Of ``exchange`` and ``changes`` the oldest rows of each inbox or feed go, and ``keep_n`` of each stay, 0 by default;
    the last one always stays. Their records and ``ids`` are the owners of inboxes, and sessions.

    Entries of the cache count from when they were stored; those that have expired go at any age, and ``keep_n`` counts
    the others. Threads of checkpoints go likewise, but count from their last change; a thread goes with everything of
    it.

    States go when they have been over for ``keep_days``, 0 by default: one that does not expire stays at any age, and
    ``keep_n`` is refused. Workers go likewise when they have been gone for so long.

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
