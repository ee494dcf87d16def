"""Calls inside a caller's own transaction.

They are rolled back with it, and their hooks run after the caller's commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn, Self
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session
from sqlalchemy.util.concurrency import in_greenlet

from lastlight_state.backends.base import Mode
from lastlight_state.backends.sql.expressions import ending_word
from lastlight_state.db.schema.base import RESERVED_NAMES, RESERVED_PREFIXES
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Unit, run_hooks
from lastlight_state.errors import MisuseError
from lastlight_state.metrics import Metrics
from lastlight_state.unwinding import Exit, HeldResource, block

_SAVEPOINT = "lastlight_block"
_OURS = f"^({'|'.join(RESERVED_PREFIXES)})|^({'|'.join(sorted(RESERVED_NAMES))})$"


@block
def join_transaction(scope: StoreScope, given: Connection | Session) -> Iterator[Unit]:
    """Return a unit inside the transaction of a caller's connection or session.

    Raises `MisuseError` for other objects.
    """
    connection, session = joinable(given)
    unit = Unit(Mode.WRITE, scope.backend)
    scope.backend.join(connection, unit)
    try:
        unit.backend.refuse_other_tables(unit, _OURS)
        with _undone_together(connection, unit, session), scope.inside(by_task=unit.is_awaited):
            yield unit
    finally:
        scope.backend.leave(unit)
    _hooks_follow(connection, unit, scope.metrics)


def joinable(given: object) -> tuple[Connection, Session | None]:
    """Return the connection to join, and the session that uses it. The session is None if a connection was given.

    Raises `MisuseError` for other objects.
    """
    kind = type(given)
    if kind.__module__.startswith("sqlalchemy.ext.asyncio"):
        instead = "give it to AsyncStateStore.transaction"
    elif isinstance(given, Connection):
        if not given.dialect.is_async or in_greenlet():
            return given, None
        instead = "of an asynchronous engine; give the AsyncConnection to AsyncStateStore.transaction"
    elif isinstance(given, Session):
        return _connection_of(given), given
    elif isinstance(given, Engine):
        instead = "use `with engine.begin() as connection`"
    elif hasattr(given, "registry"):  # for a scoped_session
        instead = "give session()"
    else:
        instead = "give one that is inside a transaction"
    raise MisuseError(f"connection= takes a Connection or Session of SQLAlchemy, not {kind.__name__}: {instead}")


def _connection_of(session: Session) -> Connection:
    try:
        return session.connection()
    except InvalidRequestError as error:  # of several databases, of none, or to be begun first
        raise MisuseError(f"connection= is a session that gives no connection; give a Connection: {error}") from error


@block
def _undone_together(connection: Connection, unit: Unit, session: Session | None) -> Iterator[None]:
    """Roll back everything that the block wrote if it raises, even if the caller commits the rest of the transaction.

    The session discards what it flushed in the block. A commit of the caller's transaction inside the block is refused;
    SQLAlchemy treats that as a failed commit and rolls the transaction back.
    """
    if session is None:
        yield from _in_a_savepoint(connection, unit)
        return
    with session.begin_nested():
        session.connection()  # creates the savepoint
        yield from _in_a_savepoint(connection, unit)


def _in_a_savepoint(connection: Connection, unit: Unit) -> Iterator[None]:
    unit.control(f"SAVEPOINT {_SAVEPOINT}")
    with _Watch(connection, unit) as watch:
        try:
            yield
            unit.refuse_dead()
        except BaseException:
            if not watch.lost:
                unit.undo_to(_SAVEPOINT)
            raise
        unit.control(f"RELEASE SAVEPOINT {_SAVEPOINT}")


def undo(unit: Unit) -> None:
    """Roll back everything that the block has written so far."""
    unit.control(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")


class _Watch(HeldResource, AbstractContextManager["_Watch"]):
    """Refuses commits of the caller's transaction inside a block that joined it, and records rollbacks.

    It ends with the block, even if the block is interrupted; otherwise the caller could never commit.
    """

    def __init__(self, connection: Connection, unit: Unit) -> None:
        self._connection = connection
        self._unit = unit
        self._around = _savepoints(connection)
        #: True if the caller has rolled back to a point before the block.
        self.lost = False
        self._listeners: dict[str, Callable[..., None]] = {
            "commit": self._commit,
            "prepare_twophase": self._commit,
            "commit_twophase": self._commit,
            "rollback": self._lose,
            "rollback_twophase": self._lose,
            "release_savepoint": self._release,
            "rollback_savepoint": self._lose_savepoint,
            "before_cursor_execute": self._send,
            "after_cursor_execute": self._check_search_path,
        }

    def __enter__(self) -> Self:
        for name, listener in self._listeners.items():  # before hooks that run after a commit
            event.listen(self._connection, name, listener, insert=True)
        return self

    def _leave(self, *raised: object) -> None:
        self._end()
        self.handle = None

    __exit__ = Exit(_leave)

    def end_interrupted(self, handle: object) -> None:
        """Stop listening to the connection's events."""
        self._end()

    def _end(self) -> None:
        for name, listener in self._listeners.items():
            if event.contains(self._connection, name, listener):
                event.remove(self._connection, name, listener)

    def _lose(self, *_: object) -> None:
        self.lost = self._unit.undone = True

    def _lose_savepoint(self, _: Connection, name: str, __: object) -> None:
        if name in self._around:
            self._lose()

    def _commit(self, connection: Connection, *_: object) -> None:
        self._lose()
        connection.connection.rollback()  # SQLAlchemy takes the transaction for ended, and would leave it open
        self._refuse()

    def _release(self, _: Connection, name: str, __: object) -> None:
        if name in self._around:
            self._refuse()

    def _send(self, _: Connection, __: object, statement: str, *___: object) -> None:
        if ending_word(statement):
            self._refuse()

    def _check_search_path(self, _: Connection, __: object, statement: str, *___: object) -> None:
        if "search_path" in statement.lower():
            self._unit.backend.refuse_other_tables(self._unit, _OURS)

    def _refuse(self) -> NoReturn:
        raise MisuseError("commit inside a block that joined this transaction: commit after it")


def _hooks_follow(connection: Connection, unit: Unit, metrics: Metrics) -> None:
    """Run the unit's hooks when the caller's transaction commits. Discard them when it rolls back.

    If the caller rolls back to a savepoint, the hooks of units after that savepoint are discarded.
    """
    if unit.hooks:
        follower = _followers.get(connection)
        if follower is None:
            follower = _followers[connection] = _Follower(connection)
        follower.follow(_Waiting(unit, metrics, _savepoints(connection)))


@dataclass
class _Waiting:
    unit: Unit
    metrics: Metrics
    savepoints: set[str]


class _Follower:
    """A listener for the events of a caller's connection, for as long as the connection exists.

    SQLAlchemy fires its commit event before the commit. So this class itself commits through the driver, and
    SQLAlchemy's own commit then has nothing to do.
    """

    def __init__(self, connection: Connection) -> None:
        self._waiting: list[_Waiting] = []
        event.listen(connection, "commit", self._commit)
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "release_savepoint", self._release_savepoint)
        event.listen(connection, "rollback_savepoint", self._undone)

    def follow(self, waiting: _Waiting) -> None:
        """Keep these hooks until the connection's transaction ends."""
        self._waiting.append(waiting)

    def _commit(self, connection: Connection) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            connection.connection.commit()
        for one in waiting:
            run_hooks(one.unit.hooks, one.metrics)

    def _rolled_back(self, connection: Connection) -> None:
        self._waiting = []

    def _release_savepoint(self, connection: Connection, name: str, context: Any) -> None:
        for one in self._waiting:
            one.savepoints.discard(name)

    def _undone(self, connection: Connection, name: str, context: Any) -> None:
        self._waiting = [one for one in self._waiting if name not in one.savepoints]


_followers: WeakKeyDictionary[Connection, _Follower] = WeakKeyDictionary()


def _savepoints(connection: Connection) -> set[str]:
    """Return the names of the savepoints that are open on the connection."""
    found: set[str] = set()
    nested: Any = connection.get_nested_transaction()
    while nested is not None:
        found.add(nested._savepoint)
        nested = nested._previous_nested
    return found
