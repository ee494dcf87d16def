"""A pair of files of its own for each value of a test."""

from __future__ import annotations

from pathlib import Path

from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes
from lastlight_state.settings import Settings
from lastlight_state.testing import FrozenClock


def mailboxes_below(folder: Path, clock: FrozenClock) -> Mailboxes:
    """Return the mailboxes in a folder, with a short timeout."""
    return Mailboxes(folder / "v2-sessions", settings=Settings(busy_timeout=5), clock=clock)


def mailbox_pair(folder: Path, clock: FrozenClock) -> tuple[HostMailbox, AgentMailbox]:
    """Return the two sides of a new mailbox."""
    mailboxes = mailboxes_below(folder, clock)
    return mailboxes.create("group", "session"), mailboxes.agent("group", "session")
