"""Which pending messages may be worked on now. All of it is decided before any limit counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from lastlight_state.mailbox import times
from lastlight_state.mailbox.kernel import acks, messages
from lastlight_state.mailbox.kernel.readings import Both
from lastlight_state.mailbox.rows import AcksRow
from lastlight_state.mailbox.shown import HeadRow


@dataclass(frozen=True)
class Poll:
    """What a poll asks for. ``first_poll``: whether messages for a fresh agent alone are given, too."""

    now: datetime
    limit: int
    skip_kinds: frozenset[str] = frozenset()
    first_poll: bool = False

    def admits(self, head: HeadRow) -> bool:
        """Return whether a pending message may be taken, apart from acknowledgements."""
        if head["kind"] in self.skip_kinds or (head["on_wake"] and not self.first_poll):
            return False
        return times.is_due(head["process_after"], self.now)


def open_to(poll: Poll, both: Both, heads: Iterable[HeadRow]) -> Iterator[HeadRow]:
    """Return those of the pending messages that the poll may have: due, of its kinds, and not acknowledged."""
    rest = iter(heads)
    while step := list(islice(rest, messages.STEP)):
        admitted = [head for head in step if poll.admits(head)]
        found = acknowledged(both, admitted)
        yield from (head for head in admitted if not acks.is_live(found.get(head["id"]), head))


def acknowledged(both: Both, heads: Iterable[HeadRow]) -> dict[str, AcksRow]:
    """Return the acknowledgements of these messages, by id."""
    return {ack["message_id"]: ack for ack in both.keyed(acks.OF_MESSAGES, [head["id"] for head in heads])}
