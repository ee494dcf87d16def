"""Messages by number. The number's parity alone says in which file to look."""

from __future__ import annotations

from typing import Any

from lastlight_state.db import valid
from lastlight_state.errors import NotFound
from lastlight_state.mailbox import parity
from lastlight_state.mailbox.arguments import Routing
from lastlight_state.mailbox.kernel import messages
from lastlight_state.mailbox.kernel.readings import Both
from lastlight_state.mailbox.records import MessageRef
from lastlight_state.mailbox.rows import MessagesInRow, MessagesOutRow
from lastlight_state.mailbox.words import MESSAGE


def checked(seq: Any) -> int:
    """A number as a caller gives it."""
    return valid.number("seq", seq, least=1, most=parity.GREATEST)


def resolve(seq: int, group: str, both: Both) -> MessageRef:
    """The message with this number. Raises `NotFound`."""
    found = find(seq, group, both)
    if found is None:
        raise NotFound(MESSAGE, seq)
    return found


def find(seq: int, group: str, both: Both) -> MessageRef | None:
    """The message with this number, or None."""
    return _inbound(seq, group, both) if parity.side_of(seq) == "host" else _outbound(seq, both)


def platform_id(row: MessagesInRow, group: str) -> str:
    """Return what the platform calls an inbound message: the original made its id of that and the group."""
    return row["platform_message_id"] or row["id"].removesuffix(f":{group}")


def _inbound(seq: int, group: str, both: Both) -> MessageRef | None:
    found = both.keyed(messages.IN_BY_SEQ, [seq])
    return _reference(found[0], seq, "host", platform_id(found[0], group), None) if found else None


def _outbound(seq: int, both: Both) -> MessageRef | None:
    found = both.keyed(messages.OUT_BY_SEQ, [seq])
    if not found:
        return None
    receipt = next(iter(both.keyed(messages.DELIVERED_BY_ID, [found[0]["id"]])), None)
    if receipt is None:
        return _reference(found[0], seq, "agent", None, "pending")
    return _reference(found[0], seq, "agent", receipt["platform_message_id"], receipt["status"])


def _reference(
    row: MessagesInRow | MessagesOutRow, seq: int, side: str, platform: str | None, delivery: str | None
) -> MessageRef:
    return MessageRef(
        seq=seq,
        side=side,
        id=row["id"],
        platform_message_id=platform,
        routing=Routing(row["channel_type"], row["platform_id"], row["thread_id"]),
        delivery=delivery,
    )
