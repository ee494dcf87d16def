"""The connections of one store to its server: limited in number, and kept open. The one returned last is lent first.

The same operation takes a connection and records its user. So an exception from outside, such as a signal handler's,
cannot lose a connection. If it leaves a connection behind, that connection is closed: by the interrupted call as it
ends, or by the next call.
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
#: The seconds to wait for the server when it is told to cancel an interrupted call's statement.
CANCEL_SECONDS = 2.0
#: The seconds that a server gets beyond its own statement timeout.
GRACE_SECONDS = 5.0


class AnsweredConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server is silent for too long: it hangs, or the network is down."""

    #: The most seconds that the server may be silent while it is waited for; None for no limit.
    answer_seconds: float | None = None
    #: The position in the primary's log that a replica is known to have reached.
    shown = 0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        if self.answer_seconds is not None:
            gen = _limit_silence(gen, self.answer_seconds)
        return super().wait(gen, *args, **kwargs)


def await_answers(driver: Any, statement_seconds: float | None) -> None:
    """Set how long this connection waits for the answer to a statement. None means without limit.

    The setting of a caller's connection is not changed.
    """
    if isinstance(driver, AnsweredConnection):
        driver.answer_seconds = None if statement_seconds is None else statement_seconds + GRACE_SECONDS


def _limit_silence(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Wait for the driver's generator ``gen`` as the driver does, but raise if no data arrived for ``seconds``."""
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
        """True if the connection is not too old and the server has not closed it."""
        return time.monotonic() - self.opened_at < RECYCLE_SECONDS and is_alive(self.driver, self._ask)

    def close(self) -> None:
        """Close the connection, from any thread and any number of times. Cancels a running statement first."""
        cancel(self.driver)
        self.driver.close()


class Pool:
    """A pool of at most ``pool_size`` connections. Callers get them in the order of their requests."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._timeout = options.pool_timeout
        self._statement_seconds = options.statement_timeout
        self._line = FairLock(options.pool_size)
        self._all: list[Pooled] = []
        self._lent: dict[Pooled, Checkout] = {}
        #: The connections that were returned, the last one at the end. Some may have been lent again or closed since.
        self._returned: list[Pooled] = []
        self._closed = False
        #: In a child process: the connections of its parent.
        self._kept_open: list[Pooled] = []

    def take(self, checkout: Checkout) -> None:
        """Lend a live connection. Raises `BackendUnavailable` if all stay in use, or if no new one can be made."""
        if self._lent:
            self._close_the_gone()
        try:
            if metrics.waits is None:
                self._enter(checkout)
            else:
                metrics.time_call("pool", self._enter, checkout)
            pooled = self._idle(checkout) or self._open(checkout)
            await_answers(pooled.driver, self._statement_seconds)
            checkout.attach(pooled.driver, owner=pooled)
        except BaseException:
            self.recover(checkout)
            raise

    def give_back(self, checkout: Checkout) -> None:
        """Take a connection back, or close it if it is broken. Does nothing if the connection was returned before."""
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
        """Close the connection of a checkout whose unit was interrupted by an exception."""
        for pooled, holder in self._lent.copy().items():
            if holder is checkout:
                self._drop(pooled)
        self._line.leave(checkout)

    def close(self) -> None:
        """Close the unused connections now. Close each lent connection when it is returned."""
        self._closed = True
        self._close_the_gone()
        self._close_idle()

    def detach_child(self) -> None:
        """Take all connections from their users in a child process. Their server processes serve only the parent."""
        for checkout in list(self._lent.values()):
            checkout.driver = None
        self._kept_open += [*self._all, *self._lent]  # runs once for each store over the pool
        self._all, self._lent, self._returned = [], {}, []

    def _enter(self, checkout: Checkout) -> None:
        if not self._line.enter(checkout, self._timeout):
            raise waiting.all_in_use()

    def _idle(self, checkout: Checkout) -> Pooled | None:
        """Lend an open connection: the one returned last, or one whose return an exception kept from being recorded."""
        while self._returned:
            with suppress(IndexError):  # another thread took the last one
                pooled = self._returned.pop()
                if self._lends(pooled, checkout):
                    return pooled
        if len(self._lent) < len(self._all):
            return next((pooled for pooled in self._all[::-1] if self._lends(pooled, checkout)), None)
        return None

    def _lends(self, pooled: Pooled, checkout: Checkout) -> bool:
        """Lend this connection, unless another checkout has it. If it is not usable, close it and return False."""
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
        fairy.detach()  # not earlier: until here SQLAlchemy closes it if an exception comes in between
        return pooled

    def _close_the_gone(self) -> None:
        for checkout in [*self._lent.values()]:
            handle = checkout.handle  # the same test as `is_gone`, without a call for each connection
            if handle is not None and handle() is None:
                self.recover(checkout)

    def _close_late(self) -> None:
        if self._closed:  # closed while the connection was returned
            self._close_idle()

    def _close_idle(self) -> None:
        closing = Checkout(Mode.READ)
        for pooled in list(self._all):
            if self._lent.setdefault(pooled, closing) is closing:
                self._drop(pooled)

    def _drop(self, pooled: Pooled) -> None:
        pooled.close()
        with suppress(ValueError):  # another thread closes it too
            self._all.remove(pooled)
        self._lent.pop(pooled, None)


def cancel(driver: Any) -> None:
    """Tell the server to cancel the statement of an interrupted call. The statement may be waiting for a lock."""
    if driver.pgconn.transaction_status == TransactionStatus.ACTIVE:
        with suppress(psycopg.Error):
            driver.cancel_safe(timeout=CANCEL_SECONDS)


def socket_of(driver: Any) -> Any:
    """Return an object that checks the connection's socket for data by a system call, without reading."""
    asked = select.poll()  # select() would fail for file descriptors above 1,023
    if not driver.closed:
        asked.register(driver.pgconn.socket, select.POLLIN)
    return asked


def is_alive(driver: Any, asked: Any) -> bool:
    """True if the server has not closed the connection.

    A socket without data counts as alive, because only a query could show that the server no longer answers.
    """
    if driver.closed:
        return False
    if not asked.poll(0):
        return True
    try:
        driver.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not asked.poll(0)
