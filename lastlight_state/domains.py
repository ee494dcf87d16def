"""The domains stored in the database, and the groups of calls to them: `Transaction` and `View`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from lastlight_state.db.repository import Context, Face
from lastlight_state.db.units.exposed_connection import lend
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.lazy import Part

if TYPE_CHECKING:
    from lastlight_state.checkpoints import Checkpoints
    from lastlight_state.conversations import Conversations
    from lastlight_state.journal import Journal
    from lastlight_state.messaging import Messaging
    from lastlight_state.outputs import Outputs
    from lastlight_state.receipts import Receipts
    from lastlight_state.schedules import Schedules
    from lastlight_state.states import States
    from lastlight_state.workflows import Claim, Workflows


class Domains(Face):
    """The domains stored in the database. Each is imported and created at its first use."""

    #: Running workflows, and their next steps.
    workflows: Part[Workflows] = Part("lastlight_state.workflows.Workflows")
    #: Chat sessions and their messages.
    messaging: Part[Messaging] = Part("lastlight_state.messaging.Messaging")
    #: Schedules, and the outcome of each firing.
    schedules: Part[Schedules] = Part("lastlight_state.schedules.Schedules")
    #: The events of runs, in order.
    journal: Part[Journal] = Part(
        "lastlight_state.journal.Journal", lambda domains, kind: kind(domains._context, domains._wake_callback)
    )
    #: The files given to runs, and the files that their tasks produced.
    outputs: Part[Outputs] = Part("lastlight_state.outputs.Outputs")
    #: The record of maintenance, finished or running.
    receipts: Part[Receipts] = Part("lastlight_state.receipts.Receipts")
    #: Conversations: messages stored once, their orders, sessions, branches and forks.
    conversations: Part[Conversations] = Part("lastlight_state.conversations.Conversations")
    #: The states of threads, one after the other, in bytes that only the caller can read.
    checkpoints: Part[Checkpoints] = Part("lastlight_state.checkpoints.Checkpoints")
    #: Values by scope and key.
    states: Part[States] = Part("lastlight_state.states.States")

    def _wake_callback(
        self, unit: Unit, run_id: str, signal: str, correlation_id: str | None, at: datetime
    ) -> Callable[[], object] | None:
        return self.workflows.waits._wake_callback(unit, run_id, signal, correlation_id, at)


class Transaction(Domains):
    """A transaction of several calls: either all their writes are committed or none.

    Use it in the thread that opened it.
    """

    def __init__(self, context: Context, scope: TransactionScope, undo: Callable[[], object], claim: Claim | None):
        super().__init__(context.within(scope))
        self._scope, self._undo, self._claim = scope, undo, claim

    #: Running workflows, and their next steps. Engine writes present the claim with which the transaction was opened.
    workflows: Part[Workflows] = Part(
        "lastlight_state.workflows.Workflows", lambda transaction, kind: kind(transaction._context, transaction._claim)
    )

    @cached_property
    def connection(self) -> Connection:
        """Return a SQLAlchemy connection inside this transaction, for your own statements and sessions.

        ``Session(bind=tx.connection)`` joins the transaction: the block commits what the session has written. A
        rollback rolls back the whole block. Any other way to end the transaction, such as ``commit()`` or the statement
        COMMIT, raises `MisuseError`.
        """
        return lend(self._scope, self._undo)

    def after_commit(self, hook: Callable[[], object]) -> None:
        """Register a callback that is called once after the commit, never after a rollback.

        Callbacks are called in the order of their registration. An exception in one is logged and counted, because the
        commit is valid. If the process dies first, the callback is not called.
        """
        self._scope.unit.after_commit(hook)


class View(Domains):
    """A read-only view of one snapshot: later commits do not appear in it. Writing raises `ReadOnlyTransaction`."""

    def __init__(self, context: Context, scope: TransactionScope, undo: Callable[[], object]) -> None:
        super().__init__(context.within(scope))
        self._scope, self._undo = scope, undo

    @cached_property
    def connection(self) -> Connection:
        """Return a SQLAlchemy connection that reads this snapshot, for your own statements and sessions.

        The database refuses to write through it. ``Session(bind=view.connection)`` reads the models and your own tables
        in this snapshot. After a rollback nothing more can be read.
        """
        return lend(self._scope, self._undo)
