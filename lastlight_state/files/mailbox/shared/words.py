"""Words that another program stored and that this library does not know.

Such a word is neither a final status nor a lasting claim. An acknowledgement with an unknown word shows that the agent
has done something with the message. So the message is not taken again while that agent may still run, and afterwards
the host fails it. `verify` lists these words, and `status` counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql.expression import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB
from lastlight_state.files.mailbox.models import unknown_word
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.records import Finding
from lastlight_state.files.mailbox.shared import messages
from lastlight_state.files.mailbox.shared.queries import BothFiles, Columns, TolerantSelect, labelled_columns

#: The most rows of a kind that `verify` names.
_MOST: sa.ColumnElement[int] = sa.literal_column("1000")

_PLUS: custom_op[Any] = custom_op("+")

_ACKS = TolerantSelect(
    models.ACKS,
    lambda columns: sa.select(*labelled_columns(columns)).where(unknown_word(columns["status"], models.ACK_STATUSES)),
    row=Ack,
)


class AcknowledgedAs(NamedTuple):
    """A message that has no final status, and its acknowledgement with an unknown word."""

    head: Head
    ack: Ack

    @property
    def error(self) -> str:
        """Return why the message fails once its agent is gone."""
        return f"the agent acknowledged it as {self.ack.status!r:.80}, which is not a known status"


def unknown_acks(both: BothFiles) -> list[AcknowledgedAs]:
    """Return the messages that are not settled and are acknowledged with an unknown word."""
    acks = {ack.message_id: ack for ack in both.rows(_ACKS)}
    heads = both.rows_by_key(messages.HEADS_BY_ID, list(acks)) if acks else []
    return [
        AcknowledgedAs(head, acks[head.id])
        for head in heads
        if head.status not in models.ENDED and messages.is_live(acks[head.id], head)
    ]


def _select_unknown(
    table: sa.Table, key: str, word: str, known: Collection[str]
) -> TolerantSelect[tuple[str, str | None]]:
    def make(columns: Columns) -> sa.Select[Any]:
        found: tuple[sa.ColumnElement[Any], ...] = (
            columns[key].label("id"),
            sa.cast(columns[word], sa.Text).label("word"),
        )
        # An index that only gives the order must not lead to a scan of all rows.
        by_key: sa.ColumnElement[Any] = UnaryExpression(columns[key], operator=_PLUS)
        return sa.select(*found).where(unknown_word(columns[word], known)).order_by(by_key).limit(_MOST)

    return TolerantSelect(table, make, row=tuple)


#: For each table of the host's file: the name of the word, the rows with an unknown one, and what ends that state.
_IN_HOSTS_FILE = (
    ("status", _select_unknown(models.MESSAGES_IN, "id", "status", models.STATUSES), "inbox.fail settles it"),
    (
        "delivery",
        _select_unknown(models.DELIVERED, "message_out_id", "status", models.RECEIPTS),
        "outbox.requeue sends it",
    ),
    (
        "type",
        _select_unknown(models.DESTINATIONS, "name", "type", models.DESTINATION_TYPES),
        "the agent sends there as to a channel",
    ),
)


def count(both: BothFiles) -> int:
    """Return the number of rows with an unknown word, at most 1,000 of each table of the host's file."""
    return len(unknown_acks(both)) + sum(len(both.rows(reading)) for _, reading, _ in _IN_HOSTS_FILE)


def findings(both: BothFiles) -> Iterator[Finding]:
    """Yield each row with an unknown word, and what happens to it next."""
    for found in unknown_acks(both):
        problem = f"{found.error}; it fails once that agent is gone"
        yield Finding(file=OUTBOUND_DB, message_id=found.head.id, problem=problem)
    for name, reading, remedy in _IN_HOSTS_FILE:
        for message_id, word in both.rows(reading):
            problem = f"the {name} {word!r:.80} is not a known word; {remedy}"
            yield Finding(file=INBOUND_DB, message_id=message_id, problem=problem)
