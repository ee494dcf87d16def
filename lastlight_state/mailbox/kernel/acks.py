"""What an acknowledgement means for a message. Pure, but for the statements that find them.

An acknowledgement of ours names the message's number and its count of tries. So the host frees a claim by raising the
count in its own file, and a message that takes the id of an old one is not hidden by the old one's acknowledgement.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.mailbox import models
from lastlight_state.mailbox.kernel.readings import Reading, shown
from lastlight_state.mailbox.rows import AcksRow
from lastlight_state.mailbox.shown import AckedId, HeadRow
from lastlight_state.mailbox.times import instant

#: The acknowledgements of these messages.
OF_MESSAGES = Reading(
    models.ACKS,
    lambda columns, ids: sa.select(*shown(columns)).where(columns["message_id"].in_(ids)),
    listed="id",
    row=AcksRow,
)
PROCESSING = Reading(
    models.ACKS,
    lambda columns: sa.select(*shown(columns)).where(columns["status"] == sa.literal_column("'processing'")),
    row=AcksRow,
)
#: Acknowledgements that settle messages, at most 500 of them.
SETTLING = Reading(
    models.ACKS,
    lambda columns: (
        sa.select(*shown(columns, "message_id"))
        .where(columns["status"] != sa.literal_column("'processing'"))
        .limit(sa.literal_column("500"))
    ),
    row=AckedId,
)


def is_of(ack: AcksRow, head: HeadRow) -> bool:
    """Return whether the acknowledgement is of this message, not of an earlier one with its id."""
    return ack["message_seq"] is None or ack["message_seq"] == head["seq"]


def is_live(ack: AcksRow | None, head: HeadRow) -> bool:
    """Return whether the acknowledgement hides the message.

    What others wrote counts until the host frees the message.
    """
    if ack is None or not is_of(ack, head):
        return False
    if ack["message_tries"] is not None:
        return bool(ack["status"] == "completed" or ack["message_tries"] == (head["tries"] or 0))
    released_at, changed = instant(head["released_at"]), instant(ack["status_changed"])
    return released_at is None or changed is None or changed > released_at


def settles(ack: AcksRow, head: HeadRow) -> str | None:
    """Return the status that the message gets by this, or None. Work that was done counts at any try."""
    if ack["status"] == "completed" and is_of(ack, head) and (ack["message_tries"] is not None or is_live(ack, head)):
        return "completed"
    return "failed" if ack["status"] == "failed" and is_live(ack, head) else None
