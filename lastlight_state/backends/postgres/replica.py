"""Reading on a replica: a server that follows the primary and shows what it was told, some moments later.

A position in the primary's log says how much a replica must show. The primary is asked for it when this store has
written since, or when the last answer is older than half of what readers accept. A connection whose server has shown
as much already is used without asking it again, so that most units cost no round trip more than on the primary.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
from sqlalchemy.engine import URL

from lastlight_state.backends import waiting
from lastlight_state.backends.base import Backend, Checkout, Mode, Options
from lastlight_state.backends.postgres import PostgresBackend
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.locks import Lock

#: The ``reason`` of a `BackendUnavailable` for a replica that does not show enough.
BEHIND = "replica_behind"

#: Of a database, the same on all servers that follow one another.
_IDENTITY = "(SELECT system_identifier::text || current_database() FROM pg_control_system())"
_WRITTEN = (
    f"SELECT pg_current_wal_insert_lsn(), {_IDENTITY}, current_setting('wal_block_size')::bigint,"
    " pg_size_bytes(current_setting('wal_segment_size'))"
)
#: Of a replica that was promoted, and of a primary that was reached in place of one, what it has written itself.
_SHOWN = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END,"
    f" {_IDENTITY}"
)
#: A commit of nothing, after which the primary writes out its log within three times its ``wal_writer_delay``.
_COMMITTED = "SELECT pg_current_xact_id()"
#: How long a replica is waited for before that is asked for. A primary that nobody else uses would take 15 seconds.
_UNSENT_SECONDS = 0.25
#: What begins each page of the log, and the first page of each segment, in bytes.
_PAGE_HEADER, _SEGMENT_HEADER = 24, 40
_FIRST_PAUSE, _LAST_PAUSE = 0.002, 0.1
#: Of the primary's answers, how many are kept of the time of the bound.
_ANSWERS_KEPT = 16


class ReplicaBackend(PostgresBackend):
    """The database of ``primary`` as a server shows it that follows.

    A unit sees at least what the primary's store had committed before it began, and with ``max_staleness`` at least
    what anybody had committed so many seconds before. Where the server does not show that within ``pool_timeout``, it
    is `BackendUnavailable` with the reason `BEHIND`.
    """

    def __init__(self, url: URL, options: Options, primary: Backend, max_staleness: float | None) -> None:
        super().__init__(url, replace(options, read_only=True))
        self.required = Required(primary, max_staleness)

    def _lend(self, checkout: Checkout) -> None:
        super()._lend(checkout)
        try:
            self._await(checkout.driver)
        except psycopg.Error as error:
            self.release(checkout)
            raise translate(error) from error
        except BaseException:
            self.release(checkout)
            raise

    def _await(self, driver: Any) -> None:
        """Wait until the server shows what is required now. What is written meanwhile is not waited for."""
        wanted = self.required.position()
        began, pause, sent = time.monotonic(), _FIRST_PAUSE, False
        while driver.shown < wanted:
            said, identity = driver.execute(_SHOWN).fetchone()
            if identity != self.required.identity:
                raise InvalidValue(
                    "replica", "the server has another database than the primary, and does not follow it"
                )
            if said is None:
                raise BackendUnavailable("the replica does not tell what it shows", reason=BEHIND)
            driver.shown = _number(said)
            if driver.shown >= wanted:
                return
            waited = time.monotonic() - began
            if waited >= _UNSENT_SECONDS and not sent:
                self.required.send()
                sent = True
            if waited >= self.options.pool_timeout:
                self.required.doubt()
                raise BackendUnavailable("the replica is too far behind the primary", reason=BEHIND)
            waiting.pause(pause)
            pause = min(2 * pause, _LAST_PAUSE)


class Required:
    """The position in the primary's log up to which a replica must have come."""

    def __init__(self, primary: Backend, max_staleness: float | None) -> None:
        self._primary = primary
        self._bound = max_staleness
        self._lock = Lock()
        #: Marks of the last write of this store, and of the last one after which the primary was asked.
        self._written, self._asked_after = object(), object()  # something was written before there was a replica
        self._doubted = False
        #: The position after the last write of this store.
        self._own = 0
        #: What tells the primary's database from others, once it was asked.
        self.identity: str | None = None
        #: When the primary was asked, and what it said, the oldest first; none older than the bound.
        self._told: list[tuple[float, int]] = []

    def wrote(self) -> None:
        """Require what this store has committed until now."""
        self._written = object()

    def doubt(self) -> None:
        """Ask the primary again before the next unit: another one may have taken its place, with a shorter log."""
        self._doubted = True

    def send(self) -> None:
        """Let the primary send what it holds back: the last bytes of open transactions, until somebody commits."""
        with suppress(BackendUnavailable, psycopg.Error), Checkout(Mode.READ, self._primary) as checkout:
            checkout.driver.execute(_COMMITTED)

    def position(self) -> int:
        """Return the position. Raises `BackendUnavailable` where only the primary could tell, and cannot be reached."""
        with self._lock:
            now = time.monotonic()
            bound = self._bound
            if bound is not None:
                self._told = [(at, position) for at, position in self._told if now - at <= bound]
            if self._written is not self._asked_after or self._doubted:
                self._ask(now)
            elif bound is not None and (not self._told or now - self._told[-1][0] > bound / 2):
                try:
                    self._ask(now)
                except BackendUnavailable:
                    if not self._told:
                        raise
            return max(self._own, self._told[0][1]) if bound is not None else self._own

    def _ask(self, now: float) -> None:
        written = self._written  # of what is written from here on, the answer may not know
        with Checkout(Mode.READ, self._primary) as checkout:
            try:
                said, self.identity, page, segment = checkout.driver.execute(_WRITTEN).fetchone()
            except psycopg.Error as error:
                raise self._primary.failed(checkout, error) from error
        position = _before_header(_number(said), page, segment)
        if written is not self._asked_after or position < self._own:
            self._own = position
        self._asked_after, self._doubted = written, False
        if self._bound is not None:
            self._note(now, position, self._bound)

    def _note(self, now: float, position: int, bound: float) -> None:
        """Keep an answer, and few of those that come soon after one another."""
        if self._told and position < self._told[-1][1]:  # of another primary, which never had the rest
            self._told.clear()
        if not self._told or now - self._told[-1][0] > bound / _ANSWERS_KEPT:
            self._told.append((now, position))


def _number(position: str) -> int:
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _before_header(position: int, page: int, segment: int) -> int:
    """Return the end of the last record: where that filled its page, the server names the place after the next header.

    A replica that has shown all records is at the end of the last one.
    """
    if position % segment == _SEGMENT_HEADER:
        return position - _SEGMENT_HEADER
    return position - _PAGE_HEADER if position % page == _PAGE_HEADER else position
