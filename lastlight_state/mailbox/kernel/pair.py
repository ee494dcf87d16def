"""`Pair`: one side's view of a mailbox, and `Room`, the base of what works on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from lastlight_state.backends.base import Mode
from lastlight_state.clock import SYSTEM_CLOCK, Clock, KeptClock
from lastlight_state.db.ends import refuse_dead, run_hooks
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.scope import TransactionScope
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData, NestedTransaction
from lastlight_state.mailbox import models
from lastlight_state.mailbox.folder import Place
from lastlight_state.mailbox.kernel import counts, verification
from lastlight_state.mailbox.kernel.files import OtherFile, OwnFile
from lastlight_state.mailbox.kernel.readings import Both
from lastlight_state.mailbox.records import Finding, MailboxStatus
from lastlight_state.mailbox.words import MAILBOX, Side
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings
from lastlight_state.unwinding import block

T = TypeVar("T")


class Pair:
    """The files of one session as one side has them: its own and the other's."""

    def __init__(self, side: Side, place: Place, settings: Settings, clock: Clock, metrics: Metrics) -> None:
        paths = (place.inbound, place.outbound)
        own, other = paths if side == "host" else paths[::-1]
        self.side = side
        self.place = place
        self.settings = settings
        self.clock = clock
        self.declared: sa.MetaData = models.INBOUND if side == "host" else models.OUTBOUND
        self.own = OwnFile(place, own, settings, self.declared, metrics)
        self.other = OtherFile(place, other, settings, metrics)
        self.context = Context(self.own, clock, settings, Listeners(metrics))
        #: The number of the agent's life and its name; None while nobody has said which agent this is.
        self.instance: str | None = None
        #: Whether the agent has not polled since its start.
        self.first_poll = False
        #: Undo what a unit did outside of the database, when the transaction that it is part of is rolled back.
        self.undo: list[Any] | None = None

    @classmethod
    def opened(
        cls, side: Side, place: Place, settings: Settings | None, clock: Clock, metrics: Metrics | None = None
    ) -> Pair:
        """Return the files of a session. Raises `NotFound`, or `CorruptData` where its own file is not a database."""
        place.refuse_missing()
        kept = clock if clock is SYSTEM_CLOCK else KeptClock(clock)
        pair = cls(side, place, settings or Settings(), kept, metrics or Metrics())
        pair.own.make_ready()
        return pair

    def within(self, scope: TransactionScope) -> Pair:
        """Return the same files, with writes running in a transaction."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.context = self.context.within(scope)
        made.undo = []
        return made


class Room(Repository):
    """Base of the rooms of a side: a `Repository` of its own file that also looks at the other's."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.context)
        self._pair = pair
        self._look = pair.other.look

    def _both(self, work: Callable[[Both], T]) -> T:
        """Read both files, one moment of each."""
        return self._viewing(lambda unit: self._beside(unit, work))

    def _beside(self, unit: Unit, work: Callable[[Both], T]) -> T:
        """Read the other file beside a unit of the own one."""
        return self._look(lambda look: work(Both(self._pair.declared, unit, look)))


class Mailbox:
    """Base of the two sides."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def _made(self, kind: type[Any], name: str) -> Any:
        return kind(self._pair)

    @property
    def metrics(self) -> Metrics:
        """Return the counters: those of the store that it was opened from, or its own."""
        return self._pair.own.metrics

    @property
    def group(self) -> str:
        """Return the agent group of the session."""
        return self._pair.place.group

    @property
    def session(self) -> str:
        """Return the session whose mailbox this is."""
        return self._pair.place.session

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._pair.place.key!r})"

    @property
    def folder(self) -> Path:
        """Return the folder of the session."""
        return self._pair.place.path

    def status(self) -> MailboxStatus:
        """Return how much waits, from one moment of each file."""
        now = self._pair.clock.now()
        return Room(self._pair)._both(lambda both: counts.status(both, now))

    def verify(self) -> list[Finding]:
        """Return what the rules of the files forbid and others have stored. It holds up neither sending nor reading."""
        return Room(self._pair)._both(lambda both: list(verification.findings(both)))

    def _stored(self) -> tuple[int, int]:
        """Count what is stored: how many messages and receipts there are."""
        return Room(self._pair)._both(counts.stored)

    def _strict(self) -> Self:
        """Return itself, unless its files break the rules."""
        for found in self.verify():
            raise CorruptData(MAILBOX, self._pair.place.key, found.file, problem=f"{found.message_id}: {found.problem}")
        return self

    @block
    def transaction(self) -> Iterator[Self]:
        """Group writes to this side's file: all or none. The block gets a mailbox to call inside it.

        Attachments that were stored inside are removed when it is rolled back. It is no part of a store's transaction.
        Raises `NestedTransaction` inside another one of the same mailbox and thread.
        """
        own = self._pair.own
        if self._pair.undo is not None or own.inside_block():
            raise NestedTransaction("inside a transaction's block of this mailbox: call the mailbox that it gave")
        with own.beginning(Mode.WRITE) as checkout, own.inside():
            unit = Unit(own.backend, checkout)
            scope = TransactionScope(unit, own.metrics)
            pair = self._pair.within(scope)
            try:
                own.admit(unit)
                yield type(self)(pair)
                refuse_dead(unit)
                own.backend.commit(checkout)
            except BaseException:
                _undo(pair)
                raise
            finally:
                scope.end()
        run_hooks(unit.hooks, own.metrics)


def _undo(pair: Pair) -> None:
    for step in reversed(pair.undo or []):
        step()
