"""Messages for the agent: polling, claiming, and reporting the outcome.

The agent writes acknowledgements into its own file; the host reads them there. A claim is made while holding the write
lock of that file, so that two processes of the agent never take the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from lastlight_state.backends import waiting
from lastlight_state.db import valid
from lastlight_state.db.news.watch import TimeLimit
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import LostRace, NotFound
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.agent import state, state as sql
from lastlight_state.files.mailbox.models import MESSAGE, ONE_SECOND
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.records import Batch, MessageIn
from lastlight_state.files.mailbox.shared import messages, queries
from lastlight_state.files.mailbox.shared.messages import Poll
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.files.mailbox.shared.queries import BothFiles

#: The kind of messages for the agent's own bookkeeping; a poll skips them unless asked for.
_SKIPPED = ("system",)


class AgentInbox(MailboxPart):
    """The agent's inbox: ``agent.inbox``."""

    def peek(self, *, limit: int = 10, skip_kinds: Collection[str] = _SKIPPED) -> Batch:
        """Return the messages that `take` would claim. Writes nothing."""
        poll = self._poll(limit, skip_kinds)
        look = self._pair.look(("poll", poll.skip_kinds, poll.first_poll), poll.now)
        if look.answer is not None:
            return Batch(messages=())
        found, damaged = self._view_both(lambda both: self._choose_batch(both, poll))
        if not found.messages and not damaged:
            look.keep("nothing", poll.horizon.until)
        return found

    def take(self, *, limit: int = 10, skip_kinds: Collection[str] = _SKIPPED) -> Batch:
        """Claim the messages to work on next, in the order of their numbers.

        Due messages that wake the agent come first, the oldest first. If there is such a message, the rest of ``limit``
        (1 to 100) is filled with the newest context messages; otherwise the batch is empty. Messages that are claimed
        already, and skipped kinds, do not count towards ``limit``. An unreadable message is acknowledged as failed.
        """
        poll = self._poll(limit, skip_kinds)
        look = self._pair.look(("take", poll.skip_kinds, poll.first_poll, self._pair.instance), poll.now)
        found = (
            Batch(messages=()) if look.answer is not None else self._writing(lambda unit: self._take_batch(unit, poll))
        )
        self._pair.first_poll = False
        if not found.messages:
            if look.answer is None:
                look.keep("nothing", poll.horizon.until)
            return found
        self._metrics.count("mailbox_taken", len(found))
        self._metrics.count("mailbox_unreadable_times", len(found.unreadable_times))
        return found

    def claim(self, *ids: str) -> tuple[str, ...]:
        """Claim these messages. Returns those that this call claimed. Claimed and settled messages are left out.

        Raises `NotFound` for an unknown id; then none is claimed.
        """
        asked = _ids(ids)
        if not asked:
            return ()
        now = self._now()
        return self._writing(lambda unit: self._claim_messages(unit, asked, now))

    def complete(self, *ids: str) -> None:
        """Acknowledge these messages as completed, all or none. Repeating it changes nothing.

        Raises `LostRace` for a message that has failed, and `NotFound`.
        """
        self._settle(_ids(ids), "completed", None)

    def fail(self, message_id: str, *, error: str) -> None:
        """Acknowledge a message as failed. Raises `LostRace` for a completed message, and `NotFound`."""
        self._settle([queries.message_id(message_id)], "failed", queries.error_text(error))

    def release(self, *ids: str) -> None:
        """Release this agent's claims, so that the messages can be taken again at once. Claims of other agents stay."""
        asked = _ids(ids)
        if not asked:
            return
        own = self._pair.instance
        self._writing(
            lambda unit: [
                unit.change(sql.RELEASE, {"message_id": message_id, "claimed_by": own}) for message_id in asked
            ]
        )

    def get(self, message_id: str) -> MessageIn:
        """Return the message, even if it is settled. Raises `NotFound`."""
        found = self.find(message_id)
        if found is None:
            raise valid.not_found(MESSAGE, message_id)
        return found

    def find(self, message_id: str) -> MessageIn | None:
        """Return the message with this id, or None."""
        asked = valid.lookup_text("id", message_id)
        rows = self._look(lambda look: look.rows_by_key(messages.IN_BY_ID, [asked]))
        return rows[0] if rows else None

    def find_response(self, question_id: str) -> MessageIn | None:
        """Return the oldest due message that answers this question and is not acknowledged.

        A message answers the question if its content, or the ``payload`` in its content, has the question's id as
        ``questionId``.
        """
        asked, now = valid.lookup_text("question_id", question_id), self._now()
        return self._view_both(lambda both: self._response(both, asked, now))

    def wait(self, timeout: timedelta, *, interval: timedelta = ONE_SECOND) -> bool:
        """Wait up to ``timeout`` until `peek` returns a message. Returns True if there is a message."""
        limit = TimeLimit(valid.duration("timeout", timeout, most=models.LONGEST_WAIT).total_seconds())
        pause = valid.duration("interval", interval, least=timedelta(milliseconds=1)).total_seconds()
        while not limit.look(lambda: self.peek(limit=1).messages):
            left = limit.seconds_left
            if not left:
                return False
            waiting.pause(min(pause, left))
        return True

    def _choose_batch(self, both: BothFiles, poll: Poll) -> tuple[Batch, list[Head]]:
        """Return the batch, and the messages before it that cannot be read."""
        found, damaged = _read(both, poll, messages.triggers(both), poll.limit)
        if found:
            more, also = _read(both, poll, messages.context(both), poll.limit - len(found))
            found, damaged = found + more, damaged + also
        unreadable = tuple(head.id for head, _ in found if models.is_unreadable(head.process_after))
        batch = Batch(messages=tuple(sorted((one for _, one in found), key=_place)), unreadable_times=unreadable)
        return batch, damaged

    def _take_batch(self, unit: Unit, poll: Poll) -> Batch:
        batch, damaged = self._beside(unit, lambda both: self._choose_batch(both, poll))
        for message in batch.messages:
            unit.change(sql.PUT_ACK, self._ack(message.id, message.seq, message.tries, "processing", poll.now))
        for head in damaged:
            ack = self._ack(head.id, head.seq, head.tries or 0, "failed", poll.now)
            unit.change(sql.PUT_ACK, {**ack, "error": "the message cannot be read"})
        return batch

    def _claim_messages(self, unit: Unit, asked: Sequence[str], now: datetime) -> tuple[str, ...]:
        heads = self._heads(asked)
        found = _acks(unit, heads.values())
        won = tuple(
            message_id
            for message_id in asked
            if heads[message_id].status == "pending" and not messages.is_live(found.get(message_id), heads[message_id])
        )
        for message_id in won:
            unit.change(
                sql.PUT_ACK,
                self._ack(message_id, heads[message_id].seq, heads[message_id].tries or 0, "processing", now),
            )
        return won

    def _settle(self, asked: Sequence[str], status: str, error: str | None) -> None:
        if not asked:
            return
        now = self._now()
        self._writing(lambda unit: self._settle_messages(unit, asked, status, error, now))

    def _settle_messages(self, unit: Unit, asked: Sequence[str], status: str, error: str | None, now: datetime) -> None:
        is_looked_through = self._pair.own.tidied_to is not None
        found, earlier = state.with_earlier(unit, self._pair, asked)
        heads = self._heads(asked, [ack.message_id for ack in earlier])
        for message_id in asked:
            ack, head = found.get(message_id), heads[message_id]
            current = ack if messages.is_live(ack, head) or _is_own_claim(ack, head, self._pair.instance) else None
            if current is not None and current.status == status:
                continue
            if current is not None and current.status in models.ENDED:
                raise LostRace(f"message {message_id!r} is {current.status}", status=current.status)
            tries = head.tries or 0 if current is None else current.message_tries
            unit.change(sql.PUT_ACK, {**self._ack(message_id, head.seq, tries, status, now), "error": error})
        if is_looked_through:
            ended = [message_id for message_id in asked if heads[message_id].status in models.ENDED]
            state.forget(unit, [*ended, *state.unneeded_ids(earlier, heads)])
        else:
            state.tidy(unit, self._pair)

    def _response(self, both: BothFiles, question_id: str, now: datetime) -> MessageIn | None:
        poll = Poll(now, models.MOST_POLLED, first_poll=self._pair.first_poll)
        answers: list[MessageIn] = []
        for walk in (messages.triggers(both), reversed([*messages.context(both)])):
            heads = messages.open_to(poll, both, walk)
            while not answers and (step := list(islice(heads, messages.STEP))):
                rows = both.rows_by_key(messages.IN_BY_ID, [head.id for head in step])
                answers = [message for message in rows if _answers(message, question_id)]
        return min(answers, key=_place) if answers else None

    def _poll(self, limit: int, skip_kinds: Collection[str]) -> Poll:
        most = valid.number("limit", limit, least=1, most=models.MOST_POLLED)
        kinds = queries.kinds("skip_kinds", skip_kinds)
        return Poll(self._now(), most, kinds, first_poll=self._pair.first_poll)

    def _heads(self, asked: Sequence[str], others: Sequence[str] = ()) -> dict[str, Head]:
        """Return the messages that are asked for, and those of the others that are there. Raises `NotFound`."""
        rows = self._look(lambda look: look.rows_by_key(messages.HEADS_BY_ID, [*asked, *others]))
        heads = {head.id: head for head in rows}
        for message_id in asked:
            if message_id not in heads:
                raise NotFound(MESSAGE, message_id)
        return heads

    def _ack(self, message_id: str, seq: int | None, tries: int | None, status: str, now: datetime) -> Row:
        return {
            "message_id": message_id,
            "status": status,
            "status_changed": models.plain_text(now),
            "message_seq": seq,
            "message_tries": tries,
            "claimed_by": self._pair.instance,
            "error": None,
        }


def _ids(ids: Sequence[str]) -> list[str]:
    valid.at_most("ids", ids, models.MOST_SENT)
    return [queries.message_id(message_id) for message_id in dict.fromkeys(ids)]


def _acks(unit: Unit, heads: Collection[Head]) -> dict[str, Ack]:
    found = messages.OF_MESSAGES.rows_by_key(unit, [head.id for head in heads])
    return {ack.message_id: ack for ack in found}


def _read(
    both: BothFiles, poll: Poll, walk: Iterable[Head], limit: int
) -> tuple[list[tuple[Head, MessageIn]], list[Head]]:
    """Return the first ``limit`` messages that the poll may have, and the damaged ones before the last."""
    heads = messages.open_to(poll, both, walk)
    found: list[tuple[Head, MessageIn]] = []
    damaged: list[Head] = []
    while step := list(islice(heads, limit - len(found))):
        known = {one.id: one for one in both.rows_by_key(messages.IN_BY_ID, [head.id for head in step])}
        found += [(head, known[head.id]) for head in step if head.id in known]
        damaged += [head for head in step if head.id not in known]
    return found, damaged


def _is_own_claim(ack: Ack | None, head: Head, instance: str | None) -> bool:
    """Return whether this life of the agent claimed the message, also where the host has freed it meanwhile."""
    if ack is None or ack.status != "processing" or not messages.is_of(ack, head):
        return False
    return instance is not None and ack.claimed_by == instance


def _place(message: MessageIn) -> Any:
    """Return the sort key of a message. Messages without a number come first, by time and id."""
    stamp = "" if message.timestamp is None else message.timestamp.isoformat()
    return (0, stamp, message.id) if message.seq is None else (1, message.seq, message.id)


def _answers(message: MessageIn, question_id: str) -> bool:
    content = message.content
    if not isinstance(content, dict):
        return False
    payload = content.get("payload")
    parts = [content, payload] if isinstance(payload, dict) else [content]
    return any(part.get("questionId") == question_id for part in parts)
