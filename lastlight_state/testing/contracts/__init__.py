"""What every store must do, whatever database carries it: behaviours as test classes over a fixture ``store``.

For backends of third parties, and for whoever wants to know that an installed library works on a database as it is::

    from lastlight_state.testing.contracts import RunsContract


    class TestRuns(RunsContract):
        pass

``store`` is a `lastlight_state.StateStore` (the plugin's own unless a test module has another), ``frozen_clock`` its
clock. The database need not be empty, and need not be emptied: each test uses ids of its own.
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
