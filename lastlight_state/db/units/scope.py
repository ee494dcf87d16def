"""The scopes in which a repository's statements run: each call alone, or inside an open transaction.

A repository hands over a *work*: a function of the `Unit` it runs in. It may be run again as a whole if the database
was busy. These ways to run it differ only in what surrounds it:

``read``                 no transaction; each SELECT sees the latest commit
``view``                 all SELECTs see one snapshot
``one_statement``        one statement that is a whole unit by itself; one round trip
``outside_transaction``  one statement that no transaction may surround, such as VACUUM
``write``                a transaction
"""

from __future__ import annotations

import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from lastlight_state.backends.base import Backend, Mode
from lastlight_state.backends.fair_lock import GroupFailed
from lastlight_state.backends.waiting import Retry, within
from lastlight_state.db.units.active_blocks import ActiveBlock, Blocks
from lastlight_state.db.units.unit import Unit, Work, add_label, run_hooks
from lastlight_state.errors import (
    BackendError,
    BackendUnavailable,
    MisuseError,
    NestedTransaction,
    ReadOnlyTransaction,
    StoreClosed,
)
from lastlight_state.metrics import Metrics

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.db")
#: Names for the members of an enumeration: on Python 3.11 each look-up of a member is a call.
_READ, _SNAPSHOT, _ONE, _WRITE = Mode.READ, Mode.SNAPSHOT, Mode.ONE, Mode.WRITE
_SAVEPOINT = "lastlight_call"


class WriteRunner(Protocol):
    """A function that runs a work that writes."""

    def __call__(self, work: Work[T], *, repeatable: bool = False) -> T: ...


class Scope(ABC):
    """The scope in which a `lastlight_state.db.repository.Repository` runs its work."""

    backend: Backend
    metrics: Metrics
    may_write: bool
    #: True if calls run inside a transaction that writes.
    writes_now: bool = False
    #: Callbacks that run before the store closes, because they need it. Only the store's own scope has them.
    before_close: list[Callable[[], object]]
    #: Callbacks after each write of a store that was committed, or may have been; they must be quick. Only the store's
    #: own scope has them.
    after_commits: list[Callable[[], object]]
    #: Watches that poll for changes (`lastlight_state.db.news.watch`), by name. Only the store's own scope has them.
    watches: dict[str, Any]

    @abstractmethod
    def read(self, work: Work[T]) -> T: ...

    @abstractmethod
    def view(self, work: Work[T]) -> T: ...

    @abstractmethod
    def one_statement(self, work: Work[T], *, repeatable: bool = False) -> T: ...

    @abstractmethod
    def write(self, work: Work[T], *, repeatable: bool = False) -> T: ...

    def together(self, call: Callable[[], T]) -> T:
        """Run ``call`` and return its result.

        Its units together wait for locks no longer than a single unit may.
        """
        return call()

    def outside_transaction(self, work: Work[T]) -> T:
        """Run a statement that must not be inside a transaction. Only a store's own scope can do this."""
        raise MisuseError("cannot run inside a transaction: call it on the store")

    @property
    def chain_runner(self) -> WriteRunner:
        """Return the method that runs a `Chain`: as one statement if the database can, else in a transaction."""
        return self.one_statement if self.backend.writes_in_ctes else self.write


class StoreScope(Scope):
    """The scope of a store. Each call is a unit, which is retried as a whole while the database is busy."""

    def __init__(self, backend: Backend, retry: Retry) -> None:
        self.backend = backend
        self.retry = retry
        self.metrics = retry.metrics
        self.may_write = not backend.options.read_only
        self.blocks = Blocks()
        self._unusable: MisuseError | None = None
        self._shares = backend.shares_commits
        self.before_close = []
        self.after_commits = []
        self.watches = {}
        _every_scope.add(self)

    def read(self, work: Work[T]) -> T:
        return self._run(_READ, work, repeatable=True)

    def view(self, work: Work[T]) -> T:
        return self._run(_SNAPSHOT, work, repeatable=True)

    def one_statement(self, work: Work[T], *, repeatable: bool = False) -> T:
        return self._run(_ONE, work, repeatable=repeatable)

    def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        return self._run(_WRITE, work, repeatable=repeatable)

    def together(self, call: Callable[[], T]) -> T:
        return within(self.retry.most_seconds, call)

    def outside_transaction(self, work: Work[T]) -> T:
        """Run a statement that must not be inside a transaction, such as VACUUM. Running it twice must do no harm."""
        return self._run(_ONE, work, repeatable=True, shares=False)

    def refuse_closed(self) -> None:
        """Refuse calls on a closed store, in a forked child, and inside a transaction block of the same thread."""
        if self._unusable is not None:
            raise type(self._unusable)(str(self._unusable))
        if self.inside_block():
            raise NestedTransaction("inside a transaction's block: call its repositories, not the store's")

    @property
    def is_open(self) -> bool:
        """True if the store accepts calls: not after `close`, and not in a child process."""
        return self._unusable is None

    def inside_block(self) -> bool:
        """True if this thread, or this task, is inside a transaction of this store."""
        return self.blocks.has_thread() or self.blocks.has_task()

    def inside(self, *, by_task: bool = False) -> ActiveBlock:
        """Return a block in which this thread, or with ``by_task`` this task, may not call the store directly."""
        return self.blocks.new_block(by_task=by_task)

    def open_unit(self, mode: Mode, label: str | None = None) -> Unit:
        """Return a unit to enter. If the database is busy, beginning its transaction is retried."""
        self.refuse_closed()
        return _Retried(mode, self, label)

    def close(self) -> bool:
        """Refuse every later call. Return True if this call closed the scope, False if it was closed before."""
        first = self._unusable is None
        if first:
            self._unusable = StoreClosed("the store is closed")
        return first

    def refuse_after_fork(self) -> None:
        """Refuse calls in a child process, whose connections belong to the parent."""
        self._unusable = MisuseError("this store was opened before fork(): open one in the child")
        self.backend.detach_child()

    def _run(self, mode: Mode, work: Work[T], *, repeatable: bool, shares: bool = True) -> T:
        if self._unusable is not None or self.blocks:
            self.refuse_closed()
        hooks_if_committed: list[Callable[[], object]] = []
        try:
            return self._attempt(mode, work, hooks_if_committed, groupable=shares and self._shares and mode.writes)
        except GroupFailed:
            return self.retry.run(partial(self._attempt, mode, work, hooks_if_committed), repeatable=repeatable)
        except BackendError as error:
            return self.retry.again(
                partial(self._attempt, mode, work, hooks_if_committed), error, repeatable=repeatable
            )

    def announce_commit(self) -> None:
        """Notify callers that wait for changes in this store that it has committed, or may have."""
        for told in self.after_commits:
            told()

    def _attempt(
        self, mode: Mode, work: Work[T], hooks_if_committed: list[Callable[[], object]], *, groupable: bool = False
    ) -> T:
        unit = Unit(mode, self.backend, work, groupable=groupable)
        try:
            with unit:
                result: T = unit.run()
        except BackendUnavailable as error:
            if error.outcome == "unknown":
                hooks_if_committed[:] = unit.hooks or hooks_if_committed[:]  # a retry that finds the work done has none
                self.announce_commit()
            raise
        if self.after_commits and mode.writes:
            self.announce_commit()
        if unit.hooks or hooks_if_committed:
            run_hooks(unit.hooks or hooks_if_committed, self.metrics)
        return result


class OpenedScope(Scope):
    """A store's scope in which every write's transaction first runs another work, such as a check."""

    def __init__(self, scope: StoreScope, opening: Work[object]) -> None:
        self.backend = scope.backend
        self.metrics = scope.metrics
        self.may_write = scope.may_write
        self.before_close = scope.before_close
        self.after_commits = scope.after_commits
        self.watches = scope.watches
        self._scope = scope
        self._opening = opening

    def read(self, work: Work[T]) -> T:
        return self._scope.read(work)

    def view(self, work: Work[T]) -> T:
        return self._scope.view(work)

    def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        def open_then_work(unit: Unit) -> T:
            self._opening(unit)
            return work(unit)

        return self._scope.write(open_then_work, repeatable=repeatable)

    one_statement = write


class _Retried(Unit):
    """A unit that begins its transaction again while the database is busy."""

    def __init__(self, mode: Mode, scope: StoreScope, label: str | None) -> None:
        super().__init__(mode, scope.backend)
        self._retry = scope.retry
        self._label = label

    def __enter__(self) -> Self:
        try:
            return self._retry.run(super().__enter__, label=self._label)
        except BackendError as error:
            add_label(error, self._label)
            raise


class TransactionScope(Scope):
    """The scope of one open transaction. A failed call rolls back its own writes only, and the transaction goes on."""

    def __init__(self, unit: Unit, metrics: Metrics, *, may_write: bool = True) -> None:
        self.backend = unit.backend
        self.unit = unit
        self.metrics = metrics
        self.may_write = self.writes_now = may_write
        #: A callback at the end, before the unit's commit.
        self.on_end: Callable[[], object] | None = None
        self._open = True

    def read(self, work: Work[T]) -> T:
        self.admit()
        return self._run_in_savepoint(work) if self.backend.failure_aborts_transaction else work(self.unit)

    view = read

    def one_statement(self, work: Work[T], *, repeatable: bool = False) -> T:
        self._admit_write()
        return self._run_in_savepoint(work)

    def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        self._admit_write()
        return self._run_in_savepoint(work)

    def end(self) -> None:
        """Refuse every later call."""
        self._open = False
        if self.on_end is not None:
            self.on_end()

    def admit(self) -> None:
        """Raise `MisuseError` if the transaction has ended or can no longer be committed."""
        if not self._open:
            raise MisuseError("this transaction has ended")
        self.unit.refuse_dead()

    def _admit_write(self) -> None:
        self.admit()
        if not self.may_write:
            raise ReadOnlyTransaction("a view only reads: write through the store or a transaction")

    def _run_in_savepoint(self, work: Work[T]) -> T:
        unit = self.unit
        hooks = len(unit.hooks)
        unit.control(f"SAVEPOINT {_SAVEPOINT}")
        try:
            result = work(unit)
        except BaseException:
            del unit.hooks[hooks:]
            unit.undo_to(_SAVEPOINT)
            raise
        unit.control(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        return result


_every_scope: weakref.WeakSet[StoreScope] = weakref.WeakSet()


def _after_fork() -> None:
    for scope in list(_every_scope):
        scope.refuse_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
