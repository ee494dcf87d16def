"""The agent's messages that have no receipt yet, in the order in which they were written.

Messages up to ``settled_seq`` are settled, so that a look costs what is not. Agents number in the order of commits:
nothing appears below it, unless a failed message is queued again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.db.statements import bind, number
from lastlight_state.mailbox import models
from lastlight_state.mailbox.kernel import messages
from lastlight_state.mailbox.kernel.readings import Both, Columns, Reading, shown

_HEAD = "id seq in_reply_to kind deliver_after timestamp target_seq channel_type platform_id".split()


def _numbered(columns: Columns) -> sa.Select[Any]:
    seq = columns["seq"]
    found = sa.select(*shown(columns, *_HEAD)).where(seq > bind("at", seq))
    return found.order_by(seq).limit(number(messages.STEP))


def _unnumbered(columns: Columns) -> sa.Select[Any]:
    found = sa.select(*shown(columns, *_HEAD)).where(columns["seq"].is_(None))
    return found.order_by(columns["timestamp"], columns["id"])


_NUMBERED, _UNNUMBERED = Reading(models.MESSAGES_OUT, _numbered), Reading(models.MESSAGES_OUT, _unnumbered)
_ATTEMPTS = Reading(
    models.ATTEMPTS,
    lambda columns, ids: sa.select(*shown(columns)).where(columns["message_out_id"].in_(ids)),
    listed="id",
)
_SETTLED = Reading(
    models.IN_META,
    lambda columns: sa.select(*shown(columns, "value")).where(columns["key"] == sa.literal_column("'settled_seq'")),
)


class Open(NamedTuple):
    """A message that is not settled, with its attempts so far."""

    head: Mapping[str, Any]
    attempt: Mapping[str, Any] | None


def unsettled(both: Both) -> Iterator[Open]:
    """All messages without a receipt, in the order in which they were written."""
    for step in steps(both, settled_seq(both)):
        for found in step:
            if isinstance(found, Open):
                yield found


def steps(both: Both, at: int) -> Iterator[list[Open | int | None]]:
    """Messages step by step; in place of one that is settled, its number."""
    rest = iter(both.rows(_UNNUMBERED))
    while found := list(islice(rest, messages.STEP)):
        yield _judged(both, found)
    while found := both.rows(_NUMBERED, {"at": at}):
        yield _judged(both, found)
        at = found[-1]["seq"]


def settled_seq(both: Both) -> int:
    """The number up to which all messages are settled."""
    found = both.rows(_SETTLED)
    text = str(found[0]["value"]) if found else ""
    return int(text) if text.isascii() and text.isdigit() else 0


def _judged(both: Both, heads: list[dict[str, Any]]) -> list[Open | int | None]:
    ids = [head["id"] for head in heads]
    settled = {row["message_out_id"] for row in both.keyed(messages.DELIVERED_BY_ID, ids)}
    attempts = {row["message_out_id"]: row for row in both.keyed(_ATTEMPTS, ids)}
    return [head["seq"] if head["id"] in settled else Open(head, attempts.get(head["id"])) for head in heads]
