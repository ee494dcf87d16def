"""The agent's messages that have no receipt yet, in the order in which they were written.

Messages up to ``settled_seq`` are settled, so a query reads only later ones. Agents number messages in the order of
commits. So no unsettled message appears below ``settled_seq``, unless a failed message is queued again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.db.lists import pages
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind, number
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.projections import Attempt, Waiting
from lastlight_state.files.mailbox.records import MessageOutSummary
from lastlight_state.files.mailbox.shared import messages
from lastlight_state.files.mailbox.shared.queries import BothFiles, Columns, TolerantSelect, labelled_columns

#: The name of the list in its page tokens.
_WAITING = "messages without a receipt"


def _select_numbered(columns: Columns) -> sa.Select[Any]:
    seq = columns["seq"]
    found = sa.select(*labelled_columns(columns, *Waiting._fields)).where(seq > bind("at", seq))
    return found.order_by(seq).limit(number(messages.STEP))


def _select_unnumbered(columns: Columns) -> sa.Select[Any]:
    found = sa.select(*labelled_columns(columns, *Waiting._fields)).where(columns["seq"].is_(None))
    return found.order_by(columns["timestamp"], columns["id"])


_NUMBERED = TolerantSelect(models.MESSAGES_OUT, _select_numbered, row=Waiting)
_UNNUMBERED = TolerantSelect(models.MESSAGES_OUT, _select_unnumbered, row=Waiting)
_ATTEMPTS = TolerantSelect(
    models.ATTEMPTS,
    lambda columns, ids: sa.select(*labelled_columns(columns)).where(columns["message_out_id"].in_(ids)),
    listed="id",
    row=Attempt,
)
_SUMMARY = (*Waiting._fields, "recurrence", "thread_id")
_SUMMARIES: TolerantSelect = TolerantSelect(
    models.MESSAGES_OUT,
    lambda columns, ids: sa.select(*labelled_columns(columns, *_SUMMARY)).where(columns["id"].in_(ids)),
    listed="id",
)
_SETTLED: TolerantSelect[tuple[str]] = TolerantSelect(
    models.IN_META,
    lambda columns: sa.select(*labelled_columns(columns, "value")).where(
        columns["key"] == sa.literal_column("'settled_seq'")
    ),
    row=tuple,
)


class UnsettledMessage(NamedTuple):
    """A message without a receipt, and its delivery attempts so far."""

    head: Waiting
    attempt: Attempt | None


def unsettled_messages(both: BothFiles) -> Iterator[UnsettledMessage]:
    """Yield all messages without a receipt, in the order in which they were written."""
    for step in steps(both, settled_seq(both)):
        for found in step:
            if isinstance(found, UnsettledMessage):
                yield found


def page(both: BothFiles, limit: int, page_token: str | None) -> Page[MessageOutSummary]:
    """Return a page of the messages without a receipt, in the order in which they were written."""
    after = pages.key(_WAITING, page_token, (int, str, str))
    behind = (one.head for one in unsettled_messages(both) if after is None or _place(one.head) > tuple(after))
    heads = list(islice(behind, limit + 1))
    rows = {row["id"]: row for row in both.rows_by_key(_SUMMARIES, [head.id for head in heads[:limit]])}
    items = tuple(MessageOutSummary.of(rows[head.id]) for head in heads[:limit] if head.id in rows)
    token = pages.encode_token(_WAITING, _place(heads[limit - 1])) if len(heads) > limit else None
    return Page(items=items, next_page_token=token)


def steps(both: BothFiles, at: int) -> Iterator[list[UnsettledMessage | int | None]]:
    """Yield messages in batches. In place of a message that is settled, yield its number."""
    rest = iter(both.rows(_UNNUMBERED))
    while found := list(islice(rest, messages.STEP)):
        yield _judge_heads(both, found)
    while found := both.rows(_NUMBERED, {"at": at}):
        yield _judge_heads(both, found)
        at = found[-1].seq or at


def settled_seq(both: BothFiles) -> int:
    """Return the message number up to which all messages are settled."""
    found = both.rows(_SETTLED)
    text = str(found[0][0]) if found else ""
    return int(text) if text.isascii() and text.isdigit() else 0


def _place(head: Waiting) -> tuple[int, str, str]:
    """Return the place of a message in the order of `unsettled_messages`."""
    return (0, str(head.timestamp), head.id) if head.seq is None else (head.seq, "", "")


def _judge_heads(both: BothFiles, heads: list[Waiting]) -> list[UnsettledMessage | int | None]:
    ids = [head.id for head in heads]
    settled = {receipt.message_out_id for receipt in both.rows_by_key(messages.DELIVERED_BY_ID, ids)}
    attempts = {attempt.message_out_id: attempt for attempt in both.rows_by_key(_ATTEMPTS, ids)}
    return [head.seq if head.id in settled else UnsettledMessage(head, attempts.get(head.id)) for head in heads]
