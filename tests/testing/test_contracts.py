"""Our own backends keep the contracts that third-party backends are held to, sync and async."""

from lastlight_state.testing.contracts import (
    ApprovalsContract,
    ClaimsContract,
    ExecutionsContract,
    GraphsContract,
    HumanRequestsContract,
    MessagingContract,
    QueueContract,
    RunsContract,
    SchedulesContract,
)


class TestRuns(RunsContract):
    """packaging-and-tests §3."""


class TestExecutions(ExecutionsContract):
    """packaging-and-tests §3."""


class TestApprovals(ApprovalsContract):
    """packaging-and-tests §3."""


class TestMessaging(MessagingContract):
    """packaging-and-tests §3."""


class TestClaims(ClaimsContract):
    """packaging-and-tests §3."""


class TestQueue(QueueContract):
    """packaging-and-tests §3."""


class TestGraphs(GraphsContract):
    """packaging-and-tests §3."""


class TestHumanRequests(HumanRequestsContract):
    """packaging-and-tests §3."""


class TestSchedules(SchedulesContract):
    """packaging-and-tests §3."""
