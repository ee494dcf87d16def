"""Numbers of messages: even ones are the host's, odd ones the agent's, and all grow over both files. Pure."""

from __future__ import annotations

from lastlight_state.errors import InvalidValue
from lastlight_state.mailbox.words import Side

#: Readers of other languages hold numbers as doubles.
GREATEST = 2**53 - 1


def side_of(seq: int) -> Side:
    """Whose message has this number."""
    return "agent" if seq % 2 else "host"


def next_number(side: Side, highest: int) -> int:
    """The smallest number of this side above ``highest``. Raises `InvalidValue` where there is none."""
    found = highest + 1 if side_of(highest + 1) == side else highest + 2
    if found > GREATEST:
        raise InvalidValue("seq", f"must be at most {GREATEST}")
    return found
