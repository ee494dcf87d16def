"""A unit of work in progress: runs statement constants on its driver connection and returns records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import sqlalchemy as sa

from lastlight_state.backends.base import LOST, Backend, Checkout, Mode
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.records import Record, make_rows
from lastlight_state.db.rows.statements import NO_VALUES, RowT, Statement, Values, has_damage
from lastlight_state.db.rows.writes import NEW, Chain
from lastlight_state.errors import BackendUnavailable, CorruptData, InvalidValue, MisuseError, StateError
from lastlight_state.metrics import Metrics

T = TypeVar("T")
R = TypeVar("R", bound=Record)
#: What makes a record of a row: a class, or its ``of``, which mypy compares with the rows.
Reader = type[R] | Callable[[RowT], R]

_log = logging.getLogger("lastlight_state.db")
#: Names for the members of an enumeration: on Python 3.11 each look-up of a member is a call.
_SNAPSHOT, _ONE, _WRITE = Mode.SNAPSHOT, Mode.ONE, Mode.WRITE


class FoundRows(NamedTuple, Generic[RowT]):
    """Rows, some of which may be damaged, and a function for the columns of the row at an index: None if damaged."""

    rows: list[RowT | CorruptData]
    columns: Callable[[int, Sequence[str]], list[Any] | None]


class Unit(Checkout):
    """One unit on one connection: ``with Unit(mode, backend, work) as unit: result = unit.run()``.

    Entering it waits for its turn, takes a connection and begins; leaving it rolls back what was not committed, and
    gives the connection back. While a ``groupable`` unit waits, a thread that has the writers' lock may run and commit
    it together with its own unit (`lastlight_state.backends.sqlite.group_commit`). A unit must not be used by two
    threads at once, nor after its block.
    """

    backend: Backend
    #: The work's result, once it has been run.
    result: Any = None

    def __init__(
        self, mode: Mode, backend: Backend, work: Callable[[Unit], object] | None = None, *, groupable: bool = False
    ) -> None:
        self.mode = mode
        self.backend = backend
        self.groupable = groupable
        #: Callbacks after the commit.
        self.hooks: list[Callable[[], object]] = []
        self._work: Any = work
        self._fetched = backend.fetch_rows
        self._key = backend.key

    def run(self) -> Any:
        """Run the work, commit, and return the work's result. Run nothing if another thread has done it in a group."""
        if self.group is None:
            self.hooks = []  # a group may have run it before, and undone it
            try:
                self.result = self._work(self)
                if self.mode is _WRITE or self.begun:
                    self.backend.commit(self)
                elif self.mode is _SNAPSHOT:
                    self.end_reading()
            except BackendUnavailable as error:
                if self.mode is _ONE and error.details.get("reason") == LOST:
                    error.outcome = "unknown"  # the one statement may have committed before its answer was lost
                raise
        return self.result

    def make(self) -> None:
        """Run the work in another thread's group, while the thread of this unit waits."""
        self.hooks = []
        self.result = self._work(self)

    def complete(self) -> None:
        """Commit a block's transaction. If the block only read, end the transaction."""
        if self.mode.writes:
            self.refuse_dead()
            self.backend.commit(self)
        else:
            self.end_reading()

    def end_reading(self) -> None:
        """End the transaction of a unit that only read. An error means only that the connection was lost."""
        if self.undone:  # by a session of the caller's
            return
        try:
            self.backend.commit(self)
        except BackendUnavailable:
            self.broken = True

    def refuse_dead(self) -> None:
        """Raise if a transaction ended or failed before its block did: later writes would not belong to it."""
        if self.undone:
            raise MisuseError("this transaction was rolled back inside its block, and nothing of it can be committed")
        if self.is_gone or not self.backend.alive(self):
            raise MisuseError(
                "this transaction failed or was ended inside its block: nothing more of it can be committed"
            )

    def change(self, statement: Statement[Any], values: Values = NO_VALUES) -> int:
        """Run a write. Return the number of rows that it changed."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        sql, parameters = compiled.sql, compiled.parameters(values)
        try:
            return int(self.execute(sql, parameters).rowcount)
        except self.backend.driver_errors as error:
            again = self.backend.persist(self, error, partial(self.execute, sql, parameters))
            return int(again.rowcount)
        except UnicodeEncodeError:
            raise InvalidValue("text", "must not contain a lone surrogate") from None
        except BaseException:  # from outside, in the middle of the statement
            self.broken = True
            raise

    def row(self, statement: Statement[RowT], values: Values = NO_VALUES) -> RowT | None:
        """Return the first row, of the type that the statement names, or None."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        found = self._fetch(compiled, values)
        if not found:
            return None
        row: Any = compiled.row(found[0])
        made: RowT = row if statement.make is None else statement.make(row)
        return made

    def rows(self, statement: Statement[RowT], values: Values = NO_VALUES) -> list[RowT]:
        """Return all rows, of the type that the statement names. For statements that limit their result themselves."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        return make_rows(statement.row, statement.make, compiled.rows(self._fetch(compiled, values)))

    def rows_or_errors(self, statement: Statement[RowT], values: Values = NO_VALUES) -> FoundRows[RowT]:
        """Return all rows. A row that cannot be read is replaced by a `CorruptData`, and counted."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        stored = self._fetch(compiled, values)
        read = compiled.readable(stored)
        make, rows = cast("Callable[[Any], RowT] | None", statement.make), cast("list[RowT | CorruptData]", read)
        if has_damage(read):
            self.backend.metrics.count("damaged_rows", sum(isinstance(row, CorruptData) for row in read))
            rows = rows if make is None else [_unless_damaged(make, row) for row in read]
        else:
            rows = make_rows(statement.row, make, read)
        return FoundRows(rows, lambda at, names: compiled.key(stored[at], names))

    def readable_rows(self, statement: Statement[RowT], values: Values = NO_VALUES) -> tuple[list[RowT], int]:
        """Return, for sweeps, the readable rows and the number of all rows. Unreadable rows are logged and counted."""
        found = self.rows_or_errors(statement, values).rows
        return self.without_damaged(found), len(found)

    @staticmethod
    def without_damaged(found: Sequence[RowT | CorruptData]) -> list[RowT]:
        """Return the rows that can be read. The other rows are logged."""
        if not has_damage(found):
            return cast("list[RowT]", [*found])
        for row in found:
            if isinstance(row, CorruptData):
                _log.error("passed over a row that cannot be read: %s", row)
        return [row for row in found if not isinstance(row, CorruptData)]

    def first_readable_rows(self, statement: Statement[RowT], values: Values, limit: int) -> list[RowT]:
        """Return the first ``limit`` readable rows of a statement that has the parameter ``limit``."""
        size = limit
        while True:
            found, in_all = self.readable_rows(statement, {**values, "limit": size})
            if len(found) >= limit or in_all < size:
                return found[:limit]
            size *= 2

    def value(self, statement: Statement[Any], values: Values = NO_VALUES) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        found = self._fetch(compiled, values)
        return next(iter(compiled.row(found[0]).values())) if found else None

    def values(self, statement: Statement[Any], values: Values = NO_VALUES) -> list[Any]:
        """Return the first column of all rows."""
        compiled = statement.compiled.get(self._key) or statement.on(self.backend)
        return [next(iter(row.values())) for row in compiled.rows(self._fetch(compiled, values))]

    def find(self, read: Reader[R, RowT], statement: Statement[RowT], values: Values = NO_VALUES) -> R | None:
        """Return the first row as a record, or None.

        With ``Message.of`` as the argument instead of ``Message``, mypy checks that the statement's rows have what the
        record needs.
        """
        found = self.row(statement, values)
        return None if found is None else _reader(read)(found)

    def records(self, read: Reader[R, RowT], statement: Statement[RowT], values: Values = NO_VALUES) -> list[R]:
        """Return all rows as records, as `find` does. For statements that limit their result themselves."""
        return [*map(_reader(read), self.rows(statement, values))]

    def chain(self, chain: Chain[RowT], values: Values) -> RowT | None:
        """Run both writes of a chain. Return a row of the chain's type, or None if the head changed nothing."""
        if self.backend.writes_in_ctes:
            return self.row(chain.whole, values)
        head = self.row(chain.head, values)
        if head is None:
            return None
        if chain.returning:
            inserted = self.row(chain.tail, {**values, **head}) or {}
            head |= {NEW + name: value for name, value in inserted.items()}
        else:
            self.change(chain.tail, {**values, **head})
        make = chain.whole.make
        return cast(RowT, head) if make is None else cast(RowT, make(head))

    def insert(self, table: sa.Table, statement: Statement[Any], rows: Iterable[Values]) -> None:
        """Insert many rows, in the given order, in the fastest way that the database has.

        ``statement`` inserts one row; its parameters have the names of the columns. If the rows come from an iterator,
        a server can store earlier rows while later ones are made. If the iterator raises, the error is raised here and
        no row is inserted.
        """
        compiled = statement.on(self.backend)
        batches = compiled.batches
        try:
            self.backend.insert_rows(self, table.name, compiled.sql, batches.names, batches.of(rows))
        except self.backend.driver_errors as error:
            raise self.backend.unit_error(self, error) from error

    def rehearse(self, statement: Statement[Any], rows: Iterable[Values]) -> None:
        """Check and convert these rows as `insert` does, but send nothing. Raises `InvalidValue` as `insert` does."""
        for _ in statement.on(self.backend).batches.of(rows):
            pass

    def named_lock(self, name: str) -> None:
        """Wait until no other unit holds the lock ``name``, and hold it until this unit ends."""
        self.backend.named_lock(self, name)

    def locked_rows(self, name: str, statement: Statement[RowT], values: Values) -> list[RowT]:
        """Return all rows of a statement that runs while the unit holds the lock ``name``.

        Only if the backend has `Backend.locks_in_one_trip`. In a unit that begins no transaction, the same message
        commits the statement.
        """
        compiled = statement.on(self.backend)
        sql, parameters = compiled.sql, compiled.parameters(values)
        try:
            found = self._fetched(self.backend.execute_locked(self, name, sql, parameters))
            return make_rows(statement.row, statement.make, compiled.rows(found))
        except self.backend.driver_errors as error:
            raise self.backend.unit_error(self, error) from error
        except BaseException:  # from outside, in the middle of the statement
            self.broken = True
            raise

    def after_commit(self, hook: Callable[[], object]) -> None:
        """Run ``hook`` once after this unit's commit, never after a rollback."""
        self.hooks.append(hook)

    def undo_to(self, savepoint: str) -> None:
        """Roll back to the savepoint, and release it. Does nothing if the transaction has ended."""
        with suppress(StateError):
            self.control(f"ROLLBACK TO SAVEPOINT {savepoint}")
            self.control(f"RELEASE SAVEPOINT {savepoint}")

    def control(self, sql: str) -> None:
        """Run a statement that controls the transaction, such as SAVEPOINT."""
        try:
            self.execute(sql)
        except self.backend.driver_errors as error:
            raise self.backend.unit_error(self, error) from error

    def _fetch(self, compiled: Compiled, values: Values) -> list[Any]:
        """Fetch all rows. On SQLite this also commits a single RETURNING statement outside a transaction."""
        sql, parameters = compiled.sql, compiled.parameters(values)
        execute = partial(self.execute, binary=True) if compiled.in_binary else self.execute
        try:
            return self._fetched(execute(sql, parameters))
        except self.backend.driver_errors as error:
            again = partial(execute, sql, parameters)
            found: list[Any] = self.backend.persist(self, error, lambda: self._fetched(again()))
            return found
        except UnicodeEncodeError:
            raise InvalidValue("text", "must not contain a lone surrogate") from None
        except BaseException:  # from outside, in the middle of the statement
            self.broken = True
            raise


def _unless_damaged(make: Callable[[Any], RowT], row: Any) -> RowT | CorruptData:
    return row if isinstance(row, CorruptData) else make(row)


def _reader(read: Reader[R, RowT]) -> Callable[[RowT], R]:
    return cast(type[R], read).of if isinstance(read, type) else read


# What an error of a unit says, and what waited for its commit.


def add_label(error: BaseException, label: str | None) -> None:
    """Add the transaction's label to the text of one of our errors, or as a note to any other exception."""
    said = f"in the transaction {label!r}"
    if label is None or said in str(error) or said in getattr(error, "__notes__", ()):
        return
    if isinstance(error, StateError):
        error.args = (f"{error} ({said})",)
    else:
        error.add_note(said)


def run_hooks(hooks: Sequence[Callable[[], object]], metrics: Metrics, label: str | None = None) -> None:
    """Run the hooks that waited for the commit, in order. An exception is logged and counted: the commit is valid."""
    for hook in hooks:
        try:
            hook()
        except Exception:  # noqa: BLE001 - the commit stands
            metrics.count("failed_hooks", label=label)
            _log.exception("an after-commit hook failed%s", f" of the transaction {label!r}" if label else "")


#: A function that a repository hands over: it runs its statements in a unit, and may be run again as a whole.
Work = Callable[[Unit], T]
