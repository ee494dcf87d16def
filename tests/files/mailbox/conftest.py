"""A pair of files for each test, seen from both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mailbox.pairs import mailboxes_below
from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here

from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes
from lastlight_state.testing import FrozenClock


@pytest.fixture
def mailboxes(tmp_path: Path, frozen_clock: FrozenClock) -> Mailboxes:
    return mailboxes_below(tmp_path, frozen_clock)


@pytest.fixture
def host(mailboxes: Mailboxes) -> HostMailbox:
    return mailboxes.create("group", "session")


@pytest.fixture
def agent(mailboxes: Mailboxes, host: HostMailbox) -> AgentMailbox:
    return mailboxes.agent("group", "session")
