"""The SQLAlchemy connection of a block, for the caller's own statements.

SQLAlchemy knows that a transaction is open on it, so sessions join that transaction instead of beginning and committing
their own. Only the block ends the transaction: any statement or method that would end it is refused before it is sent.
A rollback undoes everything that the block wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

from sqlalchemy.engine import Connection, NestedTransaction, RootTransaction
from sqlalchemy.pool import StaticPool

from lastlight_state.backends.sql.expressions import ending_word
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import MisuseError

_FIXED = frozenset({"isolation_level", "postgresql_readonly", "postgresql_deferrable"})
_MODES = frozenset({"isolation_level", "autocommit"})


def lend(scope: TransactionScope, undo: Callable[[], object]) -> Connection:
    """Return a connection inside a block's transaction. It is valid until the block ends."""
    scope.admit()
    loan = Loan(scope.unit, undo)
    scope.on_end = loan.end
    return loan.connection()


class Loan:
    """A unit's connection, lent to a caller until the block ends.

    ``undo`` rolls back everything that the block wrote.
    """

    def __init__(self, unit: Unit, undo: Callable[[], object]) -> None:
        self.unit = unit
        self._undo = undo
        self._over: str | None = None

    def connection(self) -> Connection:
        """Return the unit's connection, wrapped so that only the block can end the transaction."""
        if self.unit.is_awaited:
            raise MisuseError(
                "inside an asynchronous transaction of yours: use the connection or session that it is of"
            )
        return _LentConnection(self.unit.backend.connection(self.unit), self)

    @property
    def is_over(self) -> bool:
        """True if the block has ended or was rolled back."""
        return self._over is not None

    @property
    def driver(self) -> Any:
        """Return the driver's connection. Raises `MisuseError` after the block has ended."""
        if self._over:
            raise MisuseError(self._over)
        return self.unit.driver

    def refuse(self, what: str, instead: str = "it is committed as a whole, after its block") -> NoReturn:
        """Raise `MisuseError` for a call that would begin or end a transaction."""
        raise MisuseError(self._over or f"{what} inside a transaction of the store: {instead}")

    def end(self) -> None:
        """Refuse every later use of the connection, because it goes back to the pool."""
        self._over = self._over or "this transaction has ended"

    def undo(self) -> None:
        """Roll back everything that the block wrote, so that none of it can be committed."""
        if self._over is None:
            self._over = "this transaction was rolled back inside its block"
            self.unit.undone = True
            self._undo()


class _LentConnection(Connection):
    """A connection inside a block's transaction. Its `close` does nothing, because the block returns the connection."""

    def __init__(self, spoken: Connection, loan: Loan) -> None:
        engine = spoken.engine
        pool = StaticPool(lambda: _Driver(loan), reset_on_return=None)  # type: ignore[arg-type]
        super().__init__(engine, connection=pool.connect(), _allow_revalidate=False)
        theirs = engine.get_execution_options()
        added = {name: value for name, value in spoken.get_execution_options().items() if name not in theirs}
        super().execution_options(**added)
        self._loan = loan
        _Root(self)

    def begin(self) -> RootTransaction:
        self._loan.refuse("begin()", "begin_nested() makes a savepoint")

    def begin_twophase(self, xid: Any = None) -> NoReturn:
        self._loan.refuse("begin_twophase()")

    def begin_nested(self) -> NestedTransaction:
        """Begin a savepoint, as SQLAlchemy does. Rolling back to it discards the hooks registered after it."""
        if self.get_transaction() is None:
            self.begin()
        return _Savepoint(self, self._loan.unit)

    def execution_options(self, **options: Any) -> Self:
        """Set options, as SQLAlchemy does.

        Raises `MisuseError` for options that take effect when a transaction begins.
        """
        for name in _FIXED.intersection(options):
            self._loan.refuse(f"execution_options({name}=…)", "it has begun")
        super().execution_options(**options)
        return self

    def close(self) -> None:
        """Do nothing: the block returns the connection."""

    def detach(self) -> NoReturn:
        self._loan.refuse("detach()", "its connection is only lent")

    def invalidate(self, exception: BaseException | None = None) -> None:
        """Mark the failed connection invalid if SQLAlchemy itself calls this.

        Raises `MisuseError` for any other caller.
        """
        if exception is None:
            self._loan.refuse("invalidate()", "its connection is only lent")
        self._loan.undo()
        self._loan.unit.broken = True
        super().invalidate(exception)


class _Root(RootTransaction):
    """The block's transaction as SQLAlchemy and its sessions see it."""

    __slots__ = ()

    def commit(self) -> NoReturn:
        loan: Loan = self.connection._loan  # type: ignore[attr-defined]
        loan.refuse("commit()")


class _Savepoint(NestedTransaction):
    """A savepoint. Rolling back to it also discards the hooks that were to run after the commit."""

    __slots__ = ("_hooks", "_unit")

    def __init__(self, connection: Connection, unit: Unit) -> None:
        super().__init__(connection)
        self._unit = unit
        self._hooks = len(unit.hooks)

    def rollback(self) -> None:
        self._forget_hooks()
        super().rollback()

    def close(self) -> None:
        self._forget_hooks()
        super().close()

    def _forget_hooks(self) -> None:
        if self.is_active:
            del self._unit.hooks[self._hooks :]


class _Driver:
    """The driver's connection, whose transaction belongs to the block."""

    _loan: Loan

    def __init__(self, loan: Loan) -> None:
        object.__setattr__(self, "_loan", loan)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for code that accepts only one driver's connections
        return type(self._loan.unit.driver)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_loan").driver, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _MODES:
            self._loan.refuse(f"{name} = …", "it has begun")
        setattr(self._loan.driver, name, value)

    def cursor(self, *args: Any, **kwargs: Any) -> _Cursor:
        over = self._loan.is_over  # an error here would be wrapped by SQLAlchemy: the check comes with the first use
        return _Cursor(self._loan, None if over else self._loan.driver.cursor(*args, **kwargs))

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> _Cursor:
        return self.cursor().execute(sql, *args, **kwargs)

    def executemany(self, sql: Any, *args: Any, **kwargs: Any) -> _Cursor:
        return self.cursor().executemany(sql, *args, **kwargs)

    def executescript(self, sql: str) -> NoReturn:
        self._loan.refuse("executescript()", "it commits; execute the statements one by one")

    def commit(self) -> NoReturn:
        self._loan.refuse("commit()")

    def rollback(self) -> None:
        self._loan.undo()

    def close(self) -> None:
        """Do nothing: the block returns the connection."""


class _Cursor:
    """The driver's cursor, which refuses statements that would begin or end a transaction."""

    _loan: Loan
    _cursor: Any

    def __init__(self, loan: Loan, cursor: Any) -> None:
        object.__setattr__(self, "_loan", loan)
        object.__setattr__(self, "_cursor", cursor)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_cursor"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._cursor, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def __next__(self) -> Any:
        return next(self._cursor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Self:
        self._refuse_ending(sql)
        self._cursor.execute(sql, *args, **kwargs)
        return self

    def executemany(self, sql: Any, *args: Any, **kwargs: Any) -> Self:
        self._refuse_ending(sql)
        self._cursor.executemany(sql, *args, **kwargs)
        return self

    def copy(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse_ending(sql)
        return self._cursor.copy(sql, *args, **kwargs)

    def stream(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse_ending(sql)
        return self._cursor.stream(sql, *args, **kwargs)

    def executescript(self, sql: str) -> NoReturn:
        self._loan.refuse("executescript()", "it commits; execute the statements one by one")

    def _refuse_ending(self, sql: Any) -> None:
        word = ending_word(_text(sql, self._loan.driver))
        if word:
            self._loan.refuse(word)


def _text(sql: Any, driver: Any) -> str:
    """Return the text of a statement, in whatever form the driver takes it."""
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    composed = getattr(sql, "as_string", None)
    return str(composed(driver) if composed else sql)
