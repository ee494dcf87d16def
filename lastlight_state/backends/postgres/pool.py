"""The connections of one store to its server: bounded, kept open, the last one used first.

Who has which connection is noted in the very operation that takes it, so none can be lost to an exception from outside.
What such an exception leaves behind is closed: by the call itself as it ends, or by the next one that comes.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from lastlight_state import metrics
from lastlight_state.backends import waiting
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.fair_lock import FairLock
from lastlight_state.backends.postgres.driver import translate

RECYCLE_SECONDS = 1800
#: How long the server is waited for when it is told to give up the statement of a call that was cut off.
CANCEL_SECONDS = 2.0
#: How much longer than its own limit of a statement a server is waited for.
GRACE_SECONDS = 5.0


class AnsweredConnection(psycopg.Connection[Any]):
    """A connection that is given up when its server says nothing for too long: it hangs, or is cut off from us."""

    #: For how many seconds the server may be silent while it is waited for; None for no limit.
    answer_seconds: float | None = None
    #: The position in the primary's log up to which a replica has shown what it was told.
    shown = 0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        if self.answer_seconds is not None:
            gen = _answered(gen, self.answer_seconds)
        return super().wait(gen, *args, **kwargs)


def await_answers(driver: Any, statement_seconds: float | None) -> None:
    """Wait on this connection for statements that may take so long. None: without a limit.

    A caller's connection waits as it did before.
    """
    if isinstance(driver, AnsweredConnection):
        driver.answer_seconds = None if statement_seconds is None else statement_seconds + GRACE_SECONDS


def _answered(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Wait as ``gen`` does, and raise when nothing was ready for so many seconds."""
    silent_since: float | None = None
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                silent_since = None
            elif silent_since is None:  # the driver asks several times a second
                silent_since = time.monotonic()
            elif time.monotonic() > silent_since + seconds:
                raise psycopg.OperationalError(f"the server was silent for {seconds:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


class Pooled:
    """A connection of the pool."""

    __slots__ = ("_ask", "driver", "opened_at")

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.opened_at = time.monotonic()
        self._ask = socket_of(driver)

    @property
    def usable(self) -> bool:
        """Return whether the connection is young enough, and the server has not hung up."""
        return time.monotonic() - self.opened_at < RECYCLE_SECONDS and is_alive(self.driver, self._ask)

    def close(self) -> None:
        """Close it, from any thread and any number of times. A statement under way is cancelled first."""
        cancel(self.driver)
        self.driver.close()


class Pool:
    """At most ``pool_size`` connections, lent in the order in which they are asked for."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._timeout = options.pool_timeout
        self._statement_seconds = options.statement_timeout
        self._line = FairLock(options.pool_size)
        self._all: list[Pooled] = []
        self._lent: dict[Pooled, Checkout] = {}
        #: Connections that were given back, the last one at the end; some may be lent again, or closed.
        self._returned: list[Pooled] = []
        self._closed = False
        #: In a child process: what its parent uses.
        self._kept_open: list[Pooled] = []

    def take(self, checkout: Checkout) -> None:
        """Lend a live connection. Raises `BackendUnavailable` when all stay in use, or none can be made."""
        if self._lent:
            self._close_the_gone()
        try:
            if metrics.waits is None:
                self._enter(checkout)
            else:
                metrics.timed("pool", self._enter, checkout)
            pooled = self._idle(checkout) or self._open(checkout)
            await_answers(pooled.driver, self._statement_seconds)
            checkout.lend(pooled.driver, owner=pooled)
        except BaseException:
            self.recover(checkout)
            raise

    def give_back(self, checkout: Checkout) -> None:
        """Take a connection back, or close it when it is broken. Nothing happens when that has been done."""
        pooled = checkout.owner
        if self._lent.get(pooled) is checkout:
            if checkout.broken or self._closed:
                self._drop(pooled)
            else:
                self._lent.pop(pooled, None)
                self._returned.append(pooled)
                self._close_late()
        self._line.leave(checkout)

    def recover(self, checkout: Checkout) -> None:
        """Close what a checkout has whose unit was cut off."""
        for pooled, holder in self._lent.copy().items():
            if holder is checkout:
                self._drop(pooled)
        self._line.leave(checkout)

    def close(self) -> None:
        """Close the connections that nobody uses, and from now on each that comes back."""
        self._closed = True
        self._close_the_gone()
        self._close_idle()

    def forked(self) -> None:
        """Take the connections from their users in a child process: none may speak to the parent's server process."""
        for checkout in list(self._lent.values()):
            checkout.driver = None
        self._kept_open += [*self._all, *self._lent]  # each store over the pool says it
        self._all, self._lent, self._returned = [], {}, []

    def _enter(self, checkout: Checkout) -> None:
        if not self._line.enter(checkout, self._timeout):
            raise waiting.all_in_use()

    def _idle(self, checkout: Checkout) -> Pooled | None:
        """Lend the connection that was given back last, or any that an exception kept from being noted as such."""
        while self._returned:
            with suppress(IndexError):  # somebody else took the last one
                pooled = self._returned.pop()
                if self._lends(pooled, checkout):
                    return pooled
        if len(self._lent) < len(self._all):
            return next((pooled for pooled in self._all[::-1] if self._lends(pooled, checkout)), None)
        return None

    def _lends(self, pooled: Pooled, checkout: Checkout) -> bool:
        """Lend a connection, unless somebody has it. Close it if it cannot be used."""
        if self._lent.setdefault(pooled, checkout) is not checkout:
            return False
        if pooled.usable:
            return True
        self._drop(pooled)
        return False

    def _open(self, checkout: Checkout) -> Pooled:
        try:
            fairy: Any = self._engine.raw_connection()
        except psycopg.Error as error:
            raise translate(error) from error
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise translate(cause) from cause
        pooled = Pooled(fairy.dbapi_connection)
        self._lent[pooled] = checkout
        self._all.append(pooled)
        fairy.detach()  # only now: until here SQLAlchemy closes it, should an exception come in between
        return pooled

    def _close_the_gone(self) -> None:
        for checkout in [*self._lent.values()]:
            handle = checkout.handle  # as `gone`, which would be a call for each connection
            if handle is not None and handle() is None:
                self.recover(checkout)

    def _close_late(self) -> None:
        if self._closed:  # while it was given back
            self._close_idle()

    def _close_idle(self) -> None:
        closing = Checkout(Mode.READ)
        for pooled in list(self._all):
            if self._lent.setdefault(pooled, closing) is closing:
                self._drop(pooled)

    def _drop(self, pooled: Pooled) -> None:
        pooled.close()
        with suppress(ValueError):  # somebody else closes it too
            self._all.remove(pooled)
        self._lent.pop(pooled, None)


def cancel(driver: Any) -> None:
    """Tell the server to give up the statement that a call was cut off from, which may be waiting for a lock."""
    if driver.pgconn.transaction_status == TransactionStatus.ACTIVE:
        with suppress(psycopg.Error):
            driver.cancel_safe(timeout=CANCEL_SECONDS)


def socket_of(driver: Any) -> Any:
    """Return what asks the operating system about the connection's socket."""
    asked = select.poll()  # not select(), which knows no file beyond the 1,024th
    if not driver.closed:
        asked.register(driver.pgconn.socket, select.POLLIN)
    return asked


def is_alive(driver: Any, asked: Any) -> bool:
    """Return whether the server has not hung up. A silent socket counts as live: nobody can tell without asking."""
    if driver.closed:
        return False
    if not asked.poll(0):
        return True
    try:
        driver.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not asked.poll(0)
