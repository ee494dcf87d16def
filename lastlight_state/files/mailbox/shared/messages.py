"""The statements that find messages in either file, and the iteration over pending ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Literal

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.rows.statements import RowT, bind, constant, number
from lastlight_state.errors import NotFound
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.models import MESSAGE, instant
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.records import Delivery, Destination, MessageIn, MessageOut, MessageRef
from lastlight_state.files.mailbox.shared.idle import Horizon
from lastlight_state.files.mailbox.shared.queries import BothFiles, Columns, TolerantSelect, labelled_columns

# The meaning of an acknowledgement for a message, and the statements that find acknowledgements.
#
# Our acknowledgement names the message's number and its count of tries. So the host frees a claim by increasing the
# count in its own file. And if a new message takes an old one's id, the old acknowledgement does not hide it.

#: The acknowledgements of these messages.
OF_MESSAGES = TolerantSelect(
    models.ACKS,
    lambda columns, ids: sa.select(*labelled_columns(columns)).where(columns["message_id"].in_(ids)),
    listed="id",
    row=Ack,
)
PROCESSING = TolerantSelect(
    models.ACKS,
    lambda columns: sa.select(*labelled_columns(columns)).where(columns["status"] == sa.literal_column("'processing'")),
    row=Ack,
)
#: Acknowledgements that settle messages, at most 500 of them.
SETTLING: TolerantSelect[tuple[str]] = TolerantSelect(
    models.ACKS,
    lambda columns: (
        sa.select(*labelled_columns(columns, "message_id"))
        .where(columns["status"] != sa.literal_column("'processing'"))
        .limit(sa.literal_column("500"))
    ),
    row=tuple,
)


def is_of(ack: Ack, head: Head) -> bool:
    """Return whether the acknowledgement is of this message, not of an earlier one with its id."""
    return ack.message_seq is None or ack.message_seq == head.seq


def is_live(ack: Ack | None, head: Head) -> bool:
    """Return whether the acknowledgement hides the message.

    An acknowledgement by another program is in force until the host frees the message.
    """
    if ack is None or not is_of(ack, head):
        return False
    if ack.message_tries is not None:
        return bool(ack.status == "completed" or ack.message_tries == (head.tries or 0))
    released_at, changed = instant(head.released_at), instant(ack.status_changed)
    return released_at is None or changed is None or changed > released_at


def settles(ack: Ack, head: Head) -> str | None:
    """Return the status that the message gets by this, or None. Work that was done counts at any try."""
    if ack.status == "completed" and is_of(ack, head) and (ack.message_tries is not None or is_live(ack, head)):
        return "completed"
    return "failed" if ack.status == "failed" and is_live(ack, head) else None


HEAD = Head._fields
#: Rows that one step of a walk reads.
STEP = 200


def _select_by_key(table: sa.Table, key: str, row: type[RowT]) -> TolerantSelect[RowT]:
    return TolerantSelect(
        table,
        lambda columns, values: sa.select(*labelled_columns(columns)).where(columns[key].in_(values)),
        listed=key,
        row=row,
    )


IN_BY_ID, IN_BY_SEQ = (
    _select_by_key(models.MESSAGES_IN, "id", MessageIn),
    _select_by_key(models.MESSAGES_IN, "seq", MessageIn),
)
OUT_BY_ID, OUT_BY_SEQ = (
    _select_by_key(models.MESSAGES_OUT, "id", MessageOut),
    _select_by_key(models.MESSAGES_OUT, "seq", MessageOut),
)
DELIVERED_BY_ID = _select_by_key(models.DELIVERED, "message_out_id", Delivery)
DESTINATION_BY_NAME = _select_by_key(models.DESTINATIONS, "name", Destination)
HEADS_BY_ID = TolerantSelect(
    models.MESSAGES_IN,
    lambda columns, ids: sa.select(*labelled_columns(columns, *HEAD)).where(columns["id"].in_(ids)),
    listed="id",
    row=Head,
)


def _is_pending(columns: Columns, trigger: int) -> sa.ColumnElement[bool]:
    return sa.and_(columns["status"] == constant("pending"), columns["trigger"] == number(trigger))


def _unnumbered_select(trigger: int) -> TolerantSelect[Head]:
    def make(columns: Columns) -> sa.Select[Any]:
        found = sa.select(*labelled_columns(columns, *HEAD)).where(
            _is_pending(columns, trigger), columns["seq"].is_(None)
        )
        return found.order_by(columns["timestamp"], columns["id"]).limit(number(STEP))

    return TolerantSelect(models.MESSAGES_IN, make, row=Head)


def _numbered_select(trigger: int, *, newest_first: bool) -> TolerantSelect[Head]:
    def make(columns: Columns) -> sa.Select[Any]:
        seq = columns["seq"]
        at = bind("at", seq)
        beyond = seq < at if newest_first else seq > at
        found = sa.select(*labelled_columns(columns, *HEAD)).where(_is_pending(columns, trigger), beyond)
        return found.order_by(seq.desc() if newest_first else seq).limit(number(STEP))

    return TolerantSelect(models.MESSAGES_IN, make, row=Head)


_TRIGGERS, _CONTEXT = _numbered_select(1, newest_first=False), _numbered_select(0, newest_first=True)
_UNNUMBERED_TRIGGERS, _UNNUMBERED_CONTEXT = _unnumbered_select(1), _unnumbered_select(0)
_GREATEST = 2**63 - 1


def _select_paused(columns: Columns) -> sa.Select[Any]:
    at = bind("at", columns["id"])
    found = sa.select(*labelled_columns(columns, *HEAD)).where(
        columns["status"] == constant("paused"), columns["id"] > at
    )
    return found.order_by(columns["id"]).limit(number(STEP))


_PAUSED = TolerantSelect(models.MESSAGES_IN, _select_paused, row=Head)


def _unknown(columns: Columns) -> sa.Select[Any]:
    is_unknown = models.unknown_word(columns["status"], models.STATUSES)
    found = sa.select(*labelled_columns(columns, *HEAD)).where(is_unknown, columns["id"] > bind("at", columns["id"]))
    return found.order_by(columns["id"]).limit(number(STEP))


_UNKNOWN = TolerantSelect(models.MESSAGES_IN, _unknown, row=Head)


def triggers(both: BothFiles) -> Iterator[Head]:
    """Return pending messages that wake the agent, oldest first."""
    yield from both.rows(_UNNUMBERED_TRIGGERS)
    yield from _walk(both, _TRIGGERS, -1)


def context(both: BothFiles) -> Iterator[Head]:
    """Return pending messages that wake nobody, newest first."""
    yield from _walk(both, _CONTEXT, _GREATEST)
    yield from reversed(both.rows(_UNNUMBERED_CONTEXT))


def paused_messages(both: BothFiles) -> Iterator[Head]:
    """Return paused messages, in the order of their ids."""
    return _walk(both, _PAUSED, "", key="id")


def unknown(both: BothFiles) -> Iterator[Head]:
    """Return messages whose status is not a known word, in the order of their ids."""
    return _walk(both, _UNKNOWN, "", key="id")


def _walk(
    both: BothFiles, reading: TolerantSelect[Head], at: Any, *, key: Literal["seq", "id"] = "seq"
) -> Iterator[Head]:
    while found := both.rows(reading, {"at": at}):
        yield from found
        at = getattr(found[-1], key)


# Selection of the pending messages that may be worked on now. It is complete before any limit counts.


@dataclass(frozen=True)
class Poll:
    """The arguments of a poll. With ``first_poll``, messages that are only for a new agent are returned, too.

    ``horizon`` records the times of messages that are not due yet.
    """

    now: datetime
    limit: int
    skip_kinds: frozenset[str] = frozenset()
    first_poll: bool = False
    horizon: Horizon = field(default_factory=Horizon, compare=False)

    def admits(self, head: Head) -> bool:
        """Return whether a pending message may be taken, apart from acknowledgements."""
        if head.kind in self.skip_kinds or (head.on_wake and not self.first_poll):
            return False
        if models.is_due(head.process_after, self.now):
            return True
        self.horizon.meet(head.process_after, self.now)
        return False


def open_to(poll: Poll, both: BothFiles, heads: Iterable[Head]) -> Iterator[Head]:
    """Return those of the pending messages that the poll may have: due, of its kinds, and not acknowledged."""
    rest = iter(heads)
    while step := list(islice(rest, STEP)):
        admitted = [head for head in step if poll.admits(head)]
        found = acks_by_id(both, admitted)
        yield from (head for head in admitted if not is_live(found.get(head.id), head))


def acks_by_id(both: BothFiles, heads: Iterable[Head]) -> dict[str, Ack]:
    """Return the acknowledgements of these messages, by id."""
    return {ack.message_id: ack for ack in both.rows_by_key(OF_MESSAGES, [head.id for head in heads])}


# Messages by number. The number's parity alone decides which file has the message.


def check_seq(seq: Any) -> int:
    """Check a caller's message number, and return it."""
    return valid.number("seq", seq, least=1, most=models.GREATEST)


def resolve(seq: int, group: str, both: BothFiles) -> MessageRef:
    """Return the message with this number. Raises `NotFound`."""
    found = find(seq, group, both)
    if found is None:
        raise NotFound(MESSAGE, seq)
    return found


def find(seq: int, group: str, both: BothFiles) -> MessageRef | None:
    """Return the message with this number, or None."""
    return _inbound(seq, group, both) if models.side_of(seq) == "host" else _outbound(seq, both)


def platform_id(message: MessageIn, group: str) -> str:
    """Return what the platform calls an inbound message: the original made its id of that and the group."""
    return message.platform_message_id or message.id.removesuffix(f":{group}")


def _inbound(seq: int, group: str, both: BothFiles) -> MessageRef | None:
    found = both.rows_by_key(IN_BY_SEQ, [seq])
    return _reference(found[0], seq, "host", platform_id(found[0], group), None) if found else None


def _outbound(seq: int, both: BothFiles) -> MessageRef | None:
    found = both.rows_by_key(OUT_BY_SEQ, [seq])
    if not found:
        return None
    receipt = next(iter(both.rows_by_key(DELIVERED_BY_ID, [found[0].id])), None)
    if receipt is None:
        return _reference(found[0], seq, "agent", None, "pending")
    return _reference(found[0], seq, "agent", receipt.platform_message_id, receipt.status)


def _reference(
    message: MessageIn | MessageOut, seq: int, side: str, platform: str | None, delivery: str | None
) -> MessageRef:
    return MessageRef(
        seq=seq,
        side=side,
        id=message.id,
        platform_message_id=platform,
        routing=message.routing,
        delivery=delivery,
    )
