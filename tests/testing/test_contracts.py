"""Our own backends keep the contracts that third-party backends are held to, sync and async."""

from lastlight_state.testing.contracts import (
    ApprovalsContract,
    ExecutionsContract,
    MessagingContract,
    RunsContract,
)


class TestRuns(RunsContract):
    """packaging-and-tests §3."""


class TestExecutions(ExecutionsContract):
    """packaging-and-tests §3."""


class TestApprovals(ApprovalsContract):
    """packaging-and-tests §3."""


class TestMessaging(MessagingContract):
    """packaging-and-tests §3."""
