"""Looks for what the rules of a pair of files forbid. Files that we made refuse it; those of others may have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import constant
from lastlight_state.mailbox import models
from lastlight_state.mailbox.folder import INBOUND_DB, OUTBOUND_DB
from lastlight_state.mailbox.kernel.readings import Both, Columns, Reading
from lastlight_state.mailbox.records import Finding
from lastlight_state.mailbox.shown import InId, LiveTwice, OddNumber
from lastlight_state.mailbox.words import LIVE

_MOST = "1000"


def _odd_numbers(table: sa.Table, remainder: int) -> Reading[OddNumber]:
    """Return numbers that are no whole ones, or are the other side's. As text, whatever they are."""

    def make(columns: Columns) -> sa.Select[Any]:
        seq = columns["seq"]
        is_whole = sa.func.typeof(seq) == sa.literal_column("'integer'")
        sound = sa.and_(is_whole, seq > sa.literal_column("0"), seq % sa.literal_column("2") == remainder_of(remainder))
        shown: tuple[sa.ColumnElement[Any], ...] = (columns["id"].label("id"), sa.cast(seq, sa.Text).label("seq"))
        return sa.select(*shown).where(seq.is_not(None), sa.not_(sound)).limit(sa.literal_column(_MOST))

    return Reading(table, make, row=OddNumber)


def remainder_of(value: int) -> sa.ColumnElement[int]:
    """0 or 1, written into the SQL."""
    return sa.literal_column(str(value), sa.Integer)


_ODD_IN, _ODD_OUT = _odd_numbers(models.MESSAGES_IN, 0), _odd_numbers(models.MESSAGES_OUT, 1)
_ENDED = Reading(
    models.MESSAGES_IN,
    lambda columns: (
        sa.select(columns["id"].label("id"))
        .where(columns["recurrence"].is_not(None), columns["status"] == sa.literal_column("'failed'"))
        .limit(sa.literal_column(_MOST))
    ),
    row=InId,
)


_TWICE = Reading(
    models.MESSAGES_IN,
    lambda columns: (
        sa.select(sa.func.max(columns["id"]).label("id"), columns["series_id"].label("series_id"))
        .where(columns["recurrence"].is_not(None), columns["status"].in_([constant(word) for word in LIVE]))
        .group_by(columns["series_id"])
        .having(sa.func.count() > sa.literal_column("1"))
        .limit(sa.literal_column(_MOST))
    ),
    row=LiveTwice,
)


def findings(both: Both) -> Iterator[Finding]:
    """Everything that was found."""
    for reading, file in ((_ODD_IN, INBOUND_DB), (_ODD_OUT, OUTBOUND_DB)):
        for row in both.rows(reading):
            problem = f"the number {row['seq']} is not one of this side"
            yield Finding(file=file, message_id=row["id"], problem=problem)
    for twice in both.rows(_TWICE):
        problem = f"the series {twice['series_id']} has several live messages; the index that forbids it is left out"
        yield Finding(file=INBOUND_DB, message_id=twice["id"], problem=problem)
    for ended in both.rows(_ENDED):
        problem = "the series ended when this occurrence failed; inbox.retry revives it"
        yield Finding(file=INBOUND_DB, message_id=ended["id"], problem=problem)
