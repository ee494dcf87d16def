"""Our own backends keep the contracts that third-party backends are held to, sync and async."""

from collections.abc import Iterator

import pytest

from lastlight_state import StateStore
from lastlight_state.testing import Database, blocking_store
from lastlight_state.testing.contracts import (
    ApprovalsContract,
    ClaimsContract,
    ConversationsContract,
    ExecutionsContract,
    GraphsContract,
    HumanRequestsContract,
    JournalContract,
    MessagingContract,
    OutputsContract,
    QueueContract,
    RunsContract,
    SchedulesContract,
)


class TestRuns(RunsContract):
    """packaging PT-10."""


class TestExecutions(ExecutionsContract):
    """packaging PT-10."""


class TestApprovals(ApprovalsContract):
    """packaging PT-10."""


class TestMessaging(MessagingContract):
    """packaging PT-10."""


class TestClaims(ClaimsContract):
    """packaging PT-10."""


class TestQueue(QueueContract):
    """packaging PT-10."""


class TestGraphs(GraphsContract):
    """packaging PT-10."""


class TestHumanRequests(HumanRequestsContract):
    """packaging PT-10."""


class TestSchedules(SchedulesContract):
    """packaging PT-10."""


class TestConversations(ConversationsContract):
    """packaging PT-10."""


class TestJournal(JournalContract):
    """packaging PT-10."""


class TestOutputs(OutputsContract):
    """packaging PT-10: on a store that may define outputs."""

    @pytest.fixture(params=("sync", "async"))
    def store(self, request: pytest.FixtureRequest, database: Database) -> Iterator[StateStore]:
        opened = database.open(migrate=True)
        if request.param == "sync":
            yield opened
            return
        with blocking_store(opened) as blocking:
            yield blocking
