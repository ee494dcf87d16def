"""DOC-13 and DOC-14: words, times, JSON and embeddings that the columns should not hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.conversations.tables import (
    MESSAGES as TALK,
    NAMESPACES,
    SESSIONS as TALKS,
    VECTORS,
)
from lastlight_state.db import columns
from lastlight_state.db.statements import bind, constant, number, prepared
from lastlight_state.journal.tables import EVENTS
from lastlight_state.maintenance.doctor.check import MOST, Check, Fault, Look, Snapshot, found, named
from lastlight_state.maintenance.doctor.records import Finding
from lastlight_state.maintenance.vocabularies import VOCABULARIES
from lastlight_state.messaging.tables import MESSAGES, SESSIONS
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.schedules.tables import FIRES
from lastlight_state.workflows.tables import EXECUTIONS, RUNS

WORDS, BYTES = "DOC-13", "DOC-14"

#: How far a clock may be ahead.
_AHEAD = timedelta(days=1)
#: How far the clocks of this machine and of the server may be apart.
_APART = timedelta(seconds=5)

_TIMES = (
    RUNS.c.started_at,
    RUNS.c.updated_at,
    EXECUTIONS.c.started_at,
    EVENTS.c.occurred_at,
    SESSIONS.c.last_activity_at,
    MESSAGES.c.timestamp,
    FIRES.c.started_at,
    TALKS.c.updated_at,
    TALK.c.created_at,
)


def _unknown(column: sa.Column[Any], words: Collection[str]) -> Fault:
    known = [constant(word) for word in sorted(words)]
    find = sa.select(column).where(column.not_in(known)).distinct()
    message = f"{column.name} holds words that this version does not know"
    return Fault(WORDS, "warning", column.table, message, find)


def _early(column: sa.Column[Any]) -> Fault:
    find = sa.select(*column.table.primary_key.columns).where(column > bind("now", column))
    message = f"{column.name} is more than a day ahead of this machine's clock"
    return Fault(WORDS, "warning", column.table, message, find)


_WORDS = [*(_unknown(*one) for one in VOCABULARIES)]
_EARLY = [_early(column) for column in _TIMES]


def _words(look: Look, snapshot: Snapshot) -> Iterator[Finding]:
    ahead = Look(look.backend, look.settings, look.now + _AHEAD, look.deep)
    for fault in _WORDS:
        yield from fault.look(look, snapshot)
    for fault in _EARLY:
        yield from fault.look(ahead, snapshot)
    yield from _clocks(snapshot)


def _clocks(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether this machine and the server agree about the time. Times of rows are those of the machines that write."""
    server = snapshot.measures.clock
    difference = abs(SYSTEM_CLOCK.now() - server) if server is not None else timedelta(0)
    if difference > _APART:
        message = f"the clocks of this machine and of the server differ by {difference.total_seconds():.0f} s"
        yield found(WORDS, "warning", "clock", message, ["clock"])


def _contents(look: Look, snapshot: Snapshot) -> Iterator[Finding]:
    """Where the database itself sees to the form of times and JSON, nothing is looked at."""
    for table in METADATA.sorted_tables:
        for column in table.columns if table.name in snapshot.tables else ():
            wrong = _malformed(snapshot, column)
            if wrong is None:
                continue
            key = sa.select(*table.primary_key.columns).where(column.is_not(None), wrong).limit(number(MOST))
            rows = snapshot.unit.rows(prepared(key))
            if rows:
                message = f"{column.name} holds text that is no {_form(column)} of ours"
                yield found(BYTES, "error", str(table.name), message, map(named, rows))
    for fault in _EMBEDDINGS:
        yield from fault.look(look, snapshot)


def _malformed(snapshot: Snapshot, column: sa.Column[Any]) -> sa.ColumnElement[bool] | None:
    form = _form(column)
    return None if form is None else snapshot.unit.backend.malformed(column, form)


def _form(column: sa.Column[Any]) -> Any:
    if column.type is columns.Timestamp:
        return "time"
    return "JSON" if column.type is columns.Json else None


def _wrong(table: sa.Table, wrong: sa.ColumnElement[bool]) -> Fault:
    find = sa.select(*table.primary_key.columns).where(wrong)
    return Fault(BYTES, "error", table, "embedding has another length than is stated, or none", find)


_EMBEDDINGS = (
    _wrong(TALK, sa.func.length(TALK.c.embedding) % number(4) != number(0)),
    _wrong(TALK, sa.func.length(TALK.c.embedding) == number(0)),
    _wrong(VECTORS, sa.func.length(VECTORS.c.embedding) != VECTORS.c.dimensions * number(4)),
    _wrong(
        VECTORS,
        VECTORS.c.dimensions
        != sa.select(NAMESPACES.c.dimensions).where(NAMESPACES.c.namespace == VECTORS.c.namespace).scalar_subquery(),
    ),
)


CHECKS = (Check(WORDS, rows=_words), Check(BYTES, rows=_contents, deep=True))
