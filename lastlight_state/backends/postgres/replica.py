"""Reads on a replica: a server that copies the primary's commits with a small delay.

Each read requires that the replica has reached a certain position in the primary's log. The primary is queried for this
position if the store has written since the last query, or if the last answer is older than half of what readers accept.
If the server of a connection is known to have reached the position, no query is needed. So most units cost no more
round trips than on the primary.
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

#: The ``reason`` of a `BackendUnavailable` for a replica that lags too far behind.
BEHIND = "replica_behind"

#: The identity of a database, the same on all servers that follow one another.
_IDENTITY = "(SELECT system_identifier::text || current_database() FROM pg_control_system())"
_WRITTEN = (
    f"SELECT pg_current_wal_insert_lsn(), {_IDENTITY}, current_setting('wal_block_size')::bigint,"
    " pg_size_bytes(current_setting('wal_segment_size'))"
)
#: The replay position of a replica. For a server that is not a standby, its own write position, such as after a
#: promotion.
_SHOWN = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END,"
    f" {_IDENTITY}"
)
#: An empty commit, after which the primary writes out its log within three times its ``wal_writer_delay``.
_COMMITTED = "SELECT pg_current_xact_id()"
#: The seconds to wait for a replica before an empty commit is made. An idle primary would otherwise take 15 seconds.
_UNSENT_SECONDS = 0.25
#: The sizes in bytes of the header of each log page, and of the first page of each segment.
_PAGE_HEADER, _SEGMENT_HEADER = 24, 40
_FIRST_PAUSE, _LAST_PAUSE = 0.002, 0.1
#: The number of the primary's answers that are kept within ``max_staleness``.
_ANSWERS_KEPT = 16


class ReplicaBackend(PostgresBackend):
    """The database of ``primary``, read from a replica.

    A unit sees at least everything that the primary's store had committed before the unit began. With
    ``max_staleness``, it also sees everything that any client had committed that many seconds before. If the replica
    does not reach this state within ``pool_timeout``, the unit raises `BackendUnavailable` with the reason `BEHIND`.
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
        """Wait until the replica has reached the position that is required now.

        Writes made during the wait are not waited for.
        """
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
    """The position in the primary's log that a replica must have reached before it is read."""

    def __init__(self, primary: Backend, max_staleness: float | None) -> None:
        self._primary = primary
        self._bound = max_staleness
        self._lock = Lock()
        #: Marks of this store's last write, and of the last write after which the primary was asked.
        self._written, self._asked_after = object(), object()  # the store may have written before there was a replica
        self._doubted = False
        #: The log position after the last write of this store.
        self._own = 0
        #: The identity of the primary's database, once the primary was asked.
        self.identity: str | None = None
        #: The times at which the primary was asked, with its answers, oldest first; none older than the bound.
        self._told: list[tuple[float, int]] = []

    def wrote(self) -> None:
        """Record that replicas must have reached this store's latest commit."""
        self._written = object()

    def doubt(self) -> None:
        """Query the primary's position again before the next unit: a new primary may have a shorter log."""
        self._doubted = True

    def send(self) -> None:
        """Make the primary send the end of its log.

        Otherwise the last bytes of open transactions wait for the next commit.
        """
        with suppress(BackendUnavailable, psycopg.Error), Checkout(Mode.READ, self._primary) as checkout:
            checkout.driver.execute(_COMMITTED)

    def position(self) -> int:
        """Return the required position.

        Raises `BackendUnavailable` if only the primary knows it, and cannot be reached.
        """
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
        written = self._written  # the answer may not include later writes
        with Checkout(Mode.READ, self._primary) as checkout:
            try:
                said, self.identity, page, segment = checkout.driver.execute(_WRITTEN).fetchone()
            except psycopg.Error as error:
                raise self._primary.unit_error(checkout, error) from error
        position = _before_header(_number(said), page, segment)
        if written is not self._asked_after or position < self._own:
            self._own = position
        self._asked_after, self._doubted = written, False
        if self._bound is not None:
            self._note(now, position, self._bound)

    def _note(self, now: float, position: int, bound: float) -> None:
        """Record a position that the primary reported. If positions come in quick succession, only a few are kept."""
        if self._told and position < self._told[-1][1]:  # a new primary, which never had the rest of the log
            self._told.clear()
        if not self._told or now - self._told[-1][0] > bound / _ANSWERS_KEPT:
            self._told.append((now, position))


def _number(position: str) -> int:
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def _before_header(position: int, page: int, segment: int) -> int:
    """Return the end of the last log record before this position.

    If the record filled its page, the server reports the position after the next page's header. A replica that has
    replayed all records reports the end of the last record.
    """
    if position % segment == _SEGMENT_HEADER:
        return position - _SEGMENT_HEADER
    return position - _PAGE_HEADER if position % page == _PAGE_HEADER else position
