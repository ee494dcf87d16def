"""The domains of the database, and what groups calls to them: `Transaction` and `View`."""

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
    """The domains that live in the database, each loaded and made when it is first asked for."""

    #: What is running and what to do next.
    workflows: Part[Workflows] = Part("lastlight_state.workflows.Workflows")
    #: Chat sessions and their messages.
    messaging: Part[Messaging] = Part("lastlight_state.messaging.Messaging")
    #: When things run, and what each time did.
    schedules: Part[Schedules] = Part("lastlight_state.schedules.Schedules")
    #: What happened in runs, in order.
    journal: Part[Journal] = Part(
        "lastlight_state.journal.Journal", lambda domains, kind: kind(domains._context, domains._waking)
    )
    #: What runs were given, and what their tasks produced.
    outputs: Part[Outputs] = Part("lastlight_state.outputs.Outputs")
    #: What maintenance did, or is doing.
    receipts: Part[Receipts] = Part("lastlight_state.receipts.Receipts")
    #: Messages stored once, orders of them, sessions, branches and forks.
    conversations: Part[Conversations] = Part("lastlight_state.conversations.Conversations")
    #: States of threads, one after the other, in bytes that only the caller can read.
    checkpoints: Part[Checkpoints] = Part("lastlight_state.checkpoints.Checkpoints")
    #: Values by scope and key.
    states: Part[States] = Part("lastlight_state.states.States")

    def _waking(
        self, unit: Unit, run_id: str, signal: str, correlation_id: str | None, at: datetime
    ) -> Callable[[], object] | None:
        return self.workflows.waits._waking(unit, run_id, signal, correlation_id, at)


class Transaction(Domains):
    """A transaction of several calls: all their writes are kept, or none. Use it in the thread that opened it."""

    def __init__(self, context: Context, scope: TransactionScope, undo: Callable[[], object], claim: Claim | None):
        super().__init__(context.within(scope))
        self._scope, self._undo, self._claim = scope, undo, claim

    #: What is running and what to do next. Engine writes present the claim that the transaction was opened with.
    workflows: Part[Workflows] = Part(
        "lastlight_state.workflows.Workflows", lambda transaction, kind: kind(transaction._context, transaction._claim)
    )

    @cached_property
    def connection(self) -> Connection:
        """Return a SQLAlchemy connection inside this transaction, for statements and sessions of your own.

        ``Session(bind=tx.connection)`` joins the transaction: the block commits what it has written. A rollback undoes
        the whole block. Any other end, such as ``commit()`` or the statement COMMIT, is `MisuseError`.
        """
        return lend(self._scope, self._undo)

    def after_commit(self, hook: Callable[[], object]) -> None:
        """Run ``hook`` once, after the commit, in the order of these calls; never after a rollback.

        Its exception is logged and counted, because the commit stands. It is lost when the process dies first.
        """
        self._scope.unit.after_commit(hook)


class View(Domains):
    """A view of one moment, in which later commits stay unseen. Writing through it is `ReadOnlyTransaction`."""

    def __init__(self, context: Context, scope: TransactionScope, undo: Callable[[], object]) -> None:
        super().__init__(context.within(scope))
        self._scope, self._undo = scope, undo

    @cached_property
    def connection(self) -> Connection:
        """Return a SQLAlchemy connection that reads this moment, for statements and sessions of your own.

        The database refuses to write through it. ``Session(bind=view.connection)`` reads the models and your own tables
        as they were in this moment. After a rollback nothing more is read.
        """
        return lend(self._scope, self._undo)
