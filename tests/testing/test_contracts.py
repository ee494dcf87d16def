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
