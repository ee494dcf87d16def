"""`Pair`: one side's view of a mailbox, and `MailboxPart`, the base class of the parts of a side."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from lastlight_state.backends.base import Mode
from lastlight_state.clock import Clock, checked_clock
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.statements import constant
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.db.units.unit import Unit, run_hooks
from lastlight_state.errors import CorruptData, NestedTransaction
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB, Place
from lastlight_state.files.mailbox.models import LIVE, MAILBOX, Side
from lastlight_state.files.mailbox.records import Finding, MailboxStatus
from lastlight_state.files.mailbox.shared import deliveries, messages, words
from lastlight_state.files.mailbox.shared.files import OtherFile, OwnFile
from lastlight_state.files.mailbox.shared.idle import Idle, Look
from lastlight_state.files.mailbox.shared.messages import Poll
from lastlight_state.files.mailbox.shared.queries import BothFiles, Columns, TolerantSelect
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings
from lastlight_state.unwinding import block

# The numbers of pending messages in a mailbox, as either side sees them.


def _count(table: sa.Table, status: str) -> TolerantSelect[tuple[int]]:
    def make(columns: Columns) -> sa.Select[Any]:
        found = sa.select(sa.func.count().label("rows")).select_from(table)
        return found.where(columns["status"] == constant(status))

    return TolerantSelect(table, make, row=tuple)


_PENDING, _PAUSED, _FAILED = (_count(models.MESSAGES_IN, status) for status in ("pending", "paused", "failed"))
_UNDELIVERABLE = _count(models.DELIVERED, "failed")


def _rows(table: sa.Table) -> TolerantSelect[tuple[int]]:
    """Return all rows.

    ``count(*)`` is a single step for SQLite, which no timeout can stop; ``count(1)`` is a step for each row.
    """
    counted = sa.select(sa.func.count(sa.literal_column("1")).label("rows")).select_from(table)
    return TolerantSelect(table, lambda _: counted, row=tuple)


_MESSAGES = tuple(_rows(table) for table in (models.MESSAGES_IN, models.MESSAGES_OUT))
_RECEIPTS = _rows(models.DELIVERED)


def stored_counts(both: BothFiles) -> tuple[int, int]:
    """Return the number of stored messages, and the number of receipts."""
    return sum(_number(both, reading) for reading in _MESSAGES), _number(both, _RECEIPTS)


def status(both: BothFiles, now: datetime) -> MailboxStatus:
    """Return the counts of a mailbox, from a snapshot of each file.

    ``due`` counts messages that would wake an agent.
    """
    poll = Poll(now, models.MOST_POLLED, frozenset({"system"}))
    claimed = {ack.message_id: ack for ack in both.rows(messages.PROCESSING)}
    heads = both.rows_by_key(messages.HEADS_BY_ID, list(claimed))
    return MailboxStatus(
        pending=_number(both, _PENDING),
        due=sum(1 for _ in messages.open_to(poll, both, messages.triggers(both))),
        claimed=sum(messages.is_live(claimed[head.id], head) for head in heads if head.status not in models.ENDED),
        paused=_number(both, _PAUSED),
        failed=_number(both, _FAILED),
        undelivered=sum(1 for _ in deliveries.unsettled_messages(both)),
        undeliverable=_number(both, _UNDELIVERABLE),
        unknown_words=words.count(both),
    )


def _number(both: BothFiles, reading: TolerantSelect[tuple[int]]) -> int:
    found = both.rows(reading)
    return int(found[0][0]) if found else 0


# Finds violations of the rules for a pair of files. Files that we made refuse them; another program's may have them.

_MOST = "1000"


def _odd_numbers(table: sa.Table, remainder: int) -> TolerantSelect[tuple[str, str]]:
    """Return numbers that are no whole ones, or are the other side's. As text, whatever they are."""

    def make(columns: Columns) -> sa.Select[Any]:
        seq = columns["seq"]
        is_whole = sa.func.typeof(seq) == sa.literal_column("'integer'")
        sound = sa.and_(is_whole, seq > sa.literal_column("0"), seq % sa.literal_column("2") == remainder_of(remainder))
        shown: tuple[sa.ColumnElement[Any], ...] = (columns["id"].label("id"), sa.cast(seq, sa.Text).label("seq"))
        return sa.select(*shown).where(seq.is_not(None), sa.not_(sound)).limit(sa.literal_column(_MOST))

    return TolerantSelect(table, make, row=tuple)


def remainder_of(value: int) -> sa.ColumnElement[int]:
    """Return the remainder, 0 or 1, as a literal in the SQL text instead of a parameter."""
    return sa.literal_column(str(value), sa.Integer)


_ODD_IN, _ODD_OUT = _odd_numbers(models.MESSAGES_IN, 0), _odd_numbers(models.MESSAGES_OUT, 1)
_ENDED: TolerantSelect[tuple[str]] = TolerantSelect(
    models.MESSAGES_IN,
    lambda columns: (
        sa.select(columns["id"].label("id"))
        .where(columns["recurrence"].is_not(None), columns["status"] == sa.literal_column("'failed'"))
        .limit(sa.literal_column(_MOST))
    ),
    row=tuple,
)


_TWICE: TolerantSelect[tuple[str, str]] = TolerantSelect(
    models.MESSAGES_IN,
    lambda columns: (
        sa.select(sa.func.max(columns["id"]).label("id"), columns["series_id"].label("series_id"))
        .where(columns["recurrence"].is_not(None), columns["status"].in_([constant(word) for word in LIVE]))
        .group_by(columns["series_id"])
        .having(sa.func.count() > sa.literal_column("1"))
        .limit(sa.literal_column(_MOST))
    ),
    row=tuple,
)


def findings(both: BothFiles) -> Iterator[Finding]:
    """Yield all violations of the rules in the two files."""
    for reading, file in ((_ODD_IN, INBOUND_DB), (_ODD_OUT, OUTBOUND_DB)):
        for message_id, seq in both.rows(reading):
            yield Finding(file=file, message_id=message_id, problem=f"the number {seq} is not one of this side")
    for message_id, series_id in both.rows(_TWICE):
        problem = f"the series {series_id} has several live messages; the index that forbids it is left out"
        yield Finding(file=INBOUND_DB, message_id=message_id, problem=problem)
    for (message_id,) in both.rows(_ENDED):
        problem = "the series ended when this occurrence failed; inbox.retry revives it"
        yield Finding(file=INBOUND_DB, message_id=message_id, problem=problem)
    yield from words.findings(both)


T = TypeVar("T")


class Pair:
    """The two files of one session: the own file of one side, and the other side's file."""

    def __init__(
        self, side: Side, place: Place, settings: Settings, clock: Clock, metrics: Metrics, idle: Idle | None = None
    ) -> None:
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
        self.idle = idle or Idle(place)
        #: The number and name of the agent instance; None until a caller has named the instance.
        self.instance: str | None = None
        #: True if the agent has not polled since its start.
        self.first_poll = False
        #: Callbacks that undo a unit's effects outside the database if its transaction is rolled back.
        self.undo: list[Any] | None = None

    @classmethod
    def open_side(
        cls,
        side: Side,
        place: Place,
        settings: Settings | None,
        clock: Clock,
        metrics: Metrics | None = None,
        idle: Idle | None = None,
    ) -> Pair:
        """Return the files of a session. Raises `NotFound`, or `CorruptData` if the own file is not a database.

        ``idle`` holds cached answers of this side's earlier calls.
        """
        place.refuse_missing()
        pair = cls(side, place, settings or Settings(), checked_clock(clock), metrics or Metrics(), idle)
        look = pair.idle.look("is complete")
        if look.answer is None:
            pair.own.make_ready()
            look.keep(True)
        else:
            pair.own.is_ready = True
        return pair

    def within(self, scope: TransactionScope) -> Pair:
        """Return the same two files, with all writes in one transaction."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.context = self.context.within(scope)
        made.undo = []
        made.idle = Idle(None)  # uncommitted changes do not show in a stamp
        return made

    def look(self, key: Hashable, now: datetime) -> Look:
        """Return the cache lookup for the files at this moment. Raises if the own file is closed."""
        if self.undo is None:
            self.own.refuse_closed()
        return self.idle.look(key, now)


class MailboxPart(Repository):
    """The base class for the parts of a side: a `Repository` of the side's own file that also reads the other file."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.context)
        self._pair = pair
        self._look = pair.other.look

    def _view_both(self, work: Callable[[BothFiles], T]) -> T:
        """Call ``work`` with a snapshot of both files."""
        return self._viewing(lambda unit: self._beside(unit, work))

    def _beside(self, unit: Unit, work: Callable[[BothFiles], T]) -> T:
        """Call ``work`` with a snapshot of the other file, during a unit on the own file."""
        return self._look(lambda look: work(BothFiles(self._pair.declared, unit, look)))


class Mailbox:
    """The base class of the two sides of a mailbox."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def _make_part(self, kind: type[Any], name: str) -> Any:
        return kind(self._pair)

    @property
    def metrics(self) -> Metrics:
        """Return the counters: of the store from which the mailbox was opened, or else the mailbox's own."""
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
        """Return the path of the session's folder."""
        return self._pair.place.path

    def status(self) -> MailboxStatus:
        """Return the numbers of pending messages, from a snapshot of each file."""
        now = self._pair.clock.now()
        return MailboxPart(self._pair)._view_both(lambda both: status(both, now))

    def verify(self) -> list[Finding]:
        """Return the rows that violate the rules of the files. Such rows do not prevent sending or reading."""
        return MailboxPart(self._pair)._view_both(lambda both: list(findings(both)))

    def _stored_counts(self) -> tuple[int, int]:
        """Return the numbers of stored messages and receipts."""
        return MailboxPart(self._pair)._view_both(stored_counts)

    def _strict(self) -> Self:
        """Return this mailbox. Raises `CorruptData` if rows of its files violate the rules."""
        for found in self.verify():
            raise CorruptData(MAILBOX, self._pair.place.key, found.file, problem=f"{found.message_id}: {found.problem}")
        return self

    @block
    def transaction(self) -> Iterator[Self]:
        """Group writes to this side's file: all or none. Yields a mailbox to call inside the block.

        A rollback deletes attachments that were stored inside. This transaction is separate from a store's transaction.
        Raises `NestedTransaction` inside another transaction of the same mailbox and thread.
        """
        own = self._pair.own
        if self._pair.undo is not None or own.inside_block():
            raise NestedTransaction("inside a transaction's block of this mailbox: call the mailbox that it gave")
        with own.open_unit(Mode.WRITE) as unit, own.inside():
            scope = TransactionScope(unit, own.metrics)
            pair = self._pair.within(scope)
            try:
                own.admit(unit)
                yield type(self)(pair)
                unit.complete()
            except BaseException:
                _undo(pair)
                raise
            finally:
                scope.end()
        run_hooks(unit.hooks, own.metrics)


def _undo(pair: Pair) -> None:
    for step in reversed(pair.undo or []):
        step()
