"""Contract tests: what a store must do on any database, as test classes over a fixture ``store``.

They serve third-party backends, and check that an installed library works on a given database::

    from lastlight_state.testing.contracts import RunsContract

    class TestRuns(RunsContract):
        pass

``store`` is a `lastlight_state.StateStore`: the plugin's own, unless a test module overrides it. ``frozen_clock`` is
its clock. The database may hold other data and need not be emptied: each test uses ids of its own.
"""

from __future__ import annotations

from lastlight_state.testing.contracts.checkpoint_stores import CheckpointsContract
from lastlight_state.testing.contracts.conversations import ConversationsContract, MessagingContract
from lastlight_state.testing.contracts.graphs import ApprovalsContract, GraphsContract, HumanRequestsContract
from lastlight_state.testing.contracts.journal import JournalContract
from lastlight_state.testing.contracts.outputs import OutputsContract
from lastlight_state.testing.contracts.runs import ClaimsContract, ExecutionsContract, QueueContract, RunsContract
from lastlight_state.testing.contracts.schedules import SchedulesContract
from lastlight_state.testing.contracts.session_stores import HistoryContract

__all__ = [
    "ApprovalsContract",
    "CheckpointsContract",
    "ClaimsContract",
    "ConversationsContract",
    "ExecutionsContract",
    "GraphsContract",
    "HistoryContract",
    "HumanRequestsContract",
    "JournalContract",
    "MessagingContract",
    "OutputsContract",
    "QueueContract",
    "RunsContract",
    "SchedulesContract",
]
