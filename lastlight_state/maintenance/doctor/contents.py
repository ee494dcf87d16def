"""DOC-13 and DOC-14: malformed values in columns: words, times, flags, numbers, JSON, embeddings, contents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.facts import Form
from lastlight_state.backends.sql.json import kind_of
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.conversations.tables import (
    MESSAGES as TALK,
    NAMESPACES,
    VECTORS,
)
from lastlight_state.db.rows.statements import Row, bind, constant, number, statement_of
from lastlight_state.db.schema.columns import form_of
from lastlight_state.db.schema.declarations import facts_of, shaped_columns, vocabularies
from lastlight_state.errors import SealedValue
from lastlight_state.maintenance.doctor.check import (
    MOST,
    Check,
    CheckContext,
    Fault,
    Finding,
    Snapshot,
    make_finding,
    row_text,
)
from lastlight_state.maintenance.upkeep.reencrypt import unopened_values
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.reprs import repr_of
from lastlight_state.workflows.tables import RUNS

WORDS, BYTES = "DOC-13", "DOC-14"

#: Forms that must be exact, because another spelling sorts or sums differently; and forms that are only read.
_COMPARED: tuple[Form, ...] = ("time", "flag", "whole number", "number")
_READ: tuple[Form, ...] = ("JSON",)

#: How many rows with sealed values are held in memory at once.
_TOGETHER = 50
#: How far a row's time may be ahead of the clock.
_AHEAD = timedelta(days=1)
#: How far the clocks of this machine and the server may differ.
_APART = timedelta(seconds=5)


def _unknown(column: sa.Column[Any], words: Collection[str]) -> Fault:
    known = [constant(word) for word in sorted(words)]
    find = sa.select(column).where(column.not_in(known)).distinct()
    message = f"{column.name} holds words that this version does not know"
    return Fault(WORDS, "warning", column.table, message, find)


def _early(column: sa.Column[Any]) -> Fault:
    find = sa.select(*column.table.primary_key.columns).where(column > bind("now", column))
    message = f"{column.name} is more than a day ahead of this machine's clock"
    return Fault(WORDS, "warning", column.table, message, find)


_WORDS = [*(_unknown(*one) for one in vocabularies(METADATA.sorted_tables))]
_EARLY = [_early(table.c[name]) for table in METADATA.sorted_tables for name in facts_of(table).newest]


def _words(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    ahead = CheckContext(look.backend, look.settings, look.now + _AHEAD, look.deep)
    for fault in _WORDS:
        yield from fault.look(look, snapshot)
    for fault in _EARLY:
        yield from fault.look(ahead, snapshot)
    yield from _find_malformed_values(look, snapshot, WORDS, _COMPARED)
    yield from _clocks(snapshot)


def _clocks(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the clocks of this machine and of the server differ.

    Rows contain times from the clocks of the machines that write them.
    """
    server = snapshot.measures.clock
    difference = abs(SYSTEM_CLOCK.now() - server) if server is not None else timedelta(0)
    if difference > _APART:
        message = f"the clocks of this machine and of the server differ by {difference.total_seconds():.0f} s"
        yield make_finding(WORDS, "warning", "clock", message, ["clock"])


def _contents(look: CheckContext, snapshot: Snapshot) -> Iterator[Finding]:
    yield from _find_malformed_values(look, snapshot, BYTES, _READ)
    for fault in (*_SHAPES, *_EMBEDDINGS):
        yield from fault.look(look, snapshot)
    yield from _find_unopened_values(snapshot)


def _find_unopened_values(snapshot: Snapshot) -> Iterator[Finding]:
    """Find values that the store's codec cannot decrypt. Without a codec, a store does not recognise such values."""
    opened = snapshot.unit.backend.sealing
    errors: dict[tuple[str, str], list[str]] = {}
    for table, error in () if opened is None else unopened_values(snapshot.unit, opened, _TOGETHER):
        if isinstance(error, SealedValue):
            keys = errors.setdefault((table.name, error.key_id), [])
            keys += [str(error.key)] * (len(keys) < MOST)
    for (name, key_id), keys in errors.items():
        what = f"values under the key {repr_of(key_id)} cannot be opened" if key_id else "values stand in plain"
        yield make_finding(BYTES, "error", name, what, keys)


def _find_malformed_values(
    look: CheckContext, snapshot: Snapshot, check: str, forms: Collection[Form]
) -> Iterator[Finding]:
    """Find values that do not have the form of their column: in the newest rows, or in a deep examination in all rows.

    Skipped if the database itself enforces the form.
    """
    for table in METADATA.sorted_tables if snapshot.unit.backend.newest(RUNS) is not None else ():
        formed = [column for column in table.columns if form_of(column) in forms]
        if not formed or table.name not in snapshot.tables:
            continue
        rows = _rows(snapshot, table, formed, deep=look.deep)
        odd = [sa.and_(column.is_not(None), _odd(snapshot, column)) for column in rows.columns[-len(formed) :]]
        if not _keys(snapshot, rows, table, sa.or_(*odd), 1):
            continue
        for column, wrong in zip(formed, odd, strict=True):
            keys = _keys(snapshot, rows, table, wrong, MOST)
            if keys:
                message = f"{column.name} holds values that are no {form_of(column)} of ours"
                yield make_finding(check, "error", str(table.name), message, map(row_text, keys))


def _rows(snapshot: Snapshot, table: sa.Table, formed: Sequence[sa.Column[Any]], *, deep: bool) -> sa.Subquery:
    """Return the keys and these columns of the rows to examine. Labels tell a key from a column that is also a key."""
    shown = [*table.primary_key.columns, *(column.label(f"formed_{at}") for at, column in enumerate(formed))]
    newest = snapshot.unit.backend.newest(table)
    rows = sa.select(*shown)
    return (rows if deep else rows.order_by(newest).limit(number(MOST))).subquery()


def _odd(snapshot: Snapshot, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    form = form_of(column)
    wrong = None if form is None else snapshot.unit.backend.malformed_condition(column, form)
    return sa.false() if wrong is None else wrong


def _keys(
    snapshot: Snapshot, rows: sa.Subquery, table: sa.Table, wrong: sa.ColumnElement[bool], most: int
) -> list[Row]:
    keys = [rows.c[column.name] for column in table.primary_key.columns]
    return snapshot.unit.rows(statement_of(sa.select(*keys).where(wrong).limit(number(most))))


def _wrong(table: sa.Table, wrong: sa.ColumnElement[bool]) -> Fault:
    find = sa.select(*table.primary_key.columns).where(wrong)
    return Fault(BYTES, "error", table, "embedding has another length than is stated, or none", find)


def _misshapen(column: sa.Column[Any], shape: type) -> Fault:
    expected = "object" if shape is dict else "array"
    wrong = kind_of(column).not_in([constant(expected), constant("null")])
    find = sa.select(*column.table.primary_key.columns).where(wrong)
    return Fault(BYTES, "error", column.table, f"{column.name} holds JSON that is no {expected}", find)


#: Readers refuse values of another shape, just as invalid JSON.
_SHAPES = [_misshapen(*one) for one in shaped_columns(METADATA.sorted_tables)]
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
