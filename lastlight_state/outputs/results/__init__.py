"""Results: the rows that tasks produced, validated before anything is written.

Table, run, node and iteration identify a row. The attempt is not part of the key, so that a retry replaces the row of
the attempt before. No output is lost: the transaction that replaces or withdraws a row copies the row's content to
`output_history`. Bookkeeping columns come only from the arguments, never from the value.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page, make_record
from lastlight_state.db.rows.statements import Row, Statement, Values
from lastlight_state.db.runs import refuse_unknown_run
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, Conflict, CorruptData, InvalidValue, LostRace
from lastlight_state.outputs import checks, models
from lastlight_state.outputs.catalog import definitions
from lastlight_state.outputs.catalog.definitions import Targeted
from lastlight_state.outputs.checks import Place, content_for
from lastlight_state.outputs.records import Output, OutputRevision, OutputSummary
from lastlight_state.outputs.results.statements import ARCHIVE, HISTORY_LIST, TableStatements, statements_of
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content, in_utc, json_of

# From stored rows to records.


def output(table: OutputTable[Any], row: Row) -> Output[Any]:
    """Return the record of a row as it was read."""
    if table.is_payload:
        data = row[models.PAYLOAD]
    elif table.kind == "custom":
        data = {field: in_utc(row[name]) for field, name in table.names}
    else:
        data = {field: row[name] for field, name in table.names}
    return _make_output(table, row, data, row.get("row_created_at"), row.get("row_updated_at"))


def written_output(table: OutputTable[Any], place: Place, content: Content, at: Any, created: Any) -> Output[Any]:
    """Return the record of a row that was just written, without reading it again."""
    has_created, has_updated = table.has_times
    return _make_output(table, place, content.data, created if has_created else None, at if has_updated else None)


def summary(table: OutputTable[Any], row: Row) -> OutputSummary:
    """Return the record of a row without its content."""
    facts = {
        "key": table.key,
        "table_name": table.table_name,
        "run_id": row["run_id"],
        "node_id": row["node_id"],
        "iteration": row["iteration"],
        "created_at": row.get("row_created_at"),
        "updated_at": row.get("row_updated_at"),
    }
    return make_record(OutputSummary, facts)


def at_place(error: CorruptData, place: Values) -> CorruptData:
    """Return the error with the key of the damaged row, or if that is unknown, with the key that was searched for."""
    key = error.key if isinstance(error.key, tuple) else tuple(place.values())
    return CorruptData(error.table, key, error.column)


def _make_output(table: OutputTable[Any], row: Values, data: Any, created: Any, updated: Any) -> Output[Any]:
    facts = {
        "key": table.key,
        "table_name": table.table_name,
        "run_id": row["run_id"],
        "node_id": row["node_id"],
        "iteration": row["iteration"],
        "created_at": created,
        "updated_at": updated,
        "data": data,
    }
    return make_record(Output, facts, {"table": table})


# Replacing and withdrawing: the same unit copies the former content of the row to the history.


def replace_row(
    unit: Unit, table: OutputTable[Any], place: Place, content: Content, at: datetime
) -> Output[Any] | None:
    """Replace the content of a row and return the row, or None if there is no row. Equal content changes nothing."""
    wide, old = _lock_row(unit, table, place)
    if old is None:
        return None
    kept = json_of(wide.columns, old)
    if codec.canonical(kept) == codec.canonical({**_unknown(wide, table), **_known_values(table, content)}):
        return output(table, old)
    _archive(unit, table, place, old, kept, cause=models.REPLACED, reason=None, at=at)
    unit.change(wide.replace, parameters(place, content, at))
    return written_output(table, place, content, at, old.get("row_created_at"))


def withdrawn(unit: Unit, table: OutputTable[Any], place: Place, reason: str, at: datetime) -> Output[Any] | None:
    """Move a row to the history and return it, or None if there is no row."""
    wide, old = _lock_row(unit, table, place)
    if old is None:
        return None
    _archive(unit, table, place, old, json_of(wide.columns, old), cause=models.WITHDRAWN, reason=reason, at=at)
    unit.change(wide.delete, place)
    return output(table, old)


def parameters(place: Place, content: Content, at: datetime) -> Row:
    """Return the parameters of an insert or a replacement."""
    return {**place, **{f"v_{name}": value for name, value in content.row.items()}, "at": at}


def _lock_row(unit: Unit, table: OutputTable[Any], place: Place) -> tuple[TableStatements, Row | None]:
    """Lock a row and return it with all present columns of the table, and with statements that include these columns.

    The registry is read while the row is locked, which keeps other processes from adding columns. Without the lock,
    another process could add a column and fill it meanwhile; that value would be neither replaced nor copied to the
    history.
    """
    old = unit.row(statements_of(table).lock, place)
    if old is None:
        return statements_of(table), None
    wide = _as_registered(unit, table)
    return wide, old if wide.columns == table.columns else unit.row(wide.lock, place)


def _as_registered(unit: Unit, table: OutputTable[Any]) -> TableStatements:
    """Return statements that include the columns that other processes have added since this process's definition."""
    known = {column.name for column in table.columns}
    found = unit.row(definitions.FIND, {"name": table.table_name})
    extra = () if found is None else tuple(column for column in found.columns if column.name not in known)
    return TableStatements(table, extra) if extra else statements_of(table)


def _known_values(table: OutputTable[Any], content: Content) -> Row:
    return {models.PAYLOAD: content.json} if table.is_payload else content.json


def _unknown(wide: TableStatements, table: OutputTable[Any]) -> Row:
    """Return None for each column that this process does not know. These values are written to the columns."""
    return {str(column.field): None for column in wide.columns if column.field and column not in table.columns}


def _archive(
    unit: Unit,
    table: OutputTable[Any],
    place: Place,
    old: Row,
    value: Row,
    *,
    cause: models.Cause,
    reason: str | None,
    at: datetime,
) -> None:
    stored = value[models.PAYLOAD] if table.is_payload and len(value) == 1 else value
    unit.change(
        ARCHIVE,
        {
            "run_id": place["run_id"],
            "node_id": place["node_id"],
            "iteration": old["iteration"],
            "table_name": table.table_name,
            "signature": table.signature,
            "cause": cause,
            "reason": reason,
            "written_at": old.get("row_updated_at") or at,
            "removed_at": at,
            "value": _text(stored),
        },
    )


def _text(stored: Any) -> str:
    """Return the JSON text of a former row for the history.

    Other programs' values may exceed the library's JSON limits.
    """
    try:
        return codec.encode_bytes("value", stored, max_depth=models.ROW_DEPTH + 1).decode()
    except InvalidValue:
        return codec.encode_sound(stored).decode()


M = TypeVar("M")

#: How often a `put` starts again because the row that it would replace was withdrawn in between.
_ATTEMPTS = 5


class Results(Targeted):
    """``store.outputs.results``: store, read and withdraw the outputs of tasks."""

    def put(
        self, target: OutputTable[M] | str, run_id: str, node_id: str, value: Any, *, iteration: int = 0
    ) -> Output[M]:
        """Store the output of a task. The same value again changes nothing; another value replaces the whole row.

        A mapping or an instance is first validated by the model. If it is invalid, `InvalidValue` is raised with
        ``issues``, and nothing is written. A field that is left out gets its default, never the earlier value. The
        earlier row goes to the history.

        Raises `PayloadTooLarge` naming the largest field, `NotFound` for an unknown run or key, and `MisuseError` for a
        key that this process has not defined.
        """
        table = self._writable(target)
        place = checks.place(run_id, node_id, iteration)
        _refuse_iteration(table, iteration)
        content = content_for(table, value)
        at = self._now()
        try:
            return self._put(table, place, content, at)
        except Conflict as error:
            refuse_unknown_run(run_id, error)
            raise
        except BackendError as error:
            self._refuse_gone(table, error)
            raise

    def get(self, target: OutputTable[M] | str, run_id: str, node_id: str, *, iteration: int = 0) -> Output[M]:
        """Return the output of this run, node and iteration. Raises `NotFound`."""
        table = self._target(target)
        found = self._row(table, statements_of(table).get, checks.lookup_place(run_id, node_id, iteration))
        if found is None:
            raise valid.not_found(models.OUTPUT, (table.key, run_id, node_id, iteration))
        return found

    def find(self, target: OutputTable[M] | str, run_id: str, node_id: str, *, iteration: int = 0) -> Output[M] | None:
        """Return the output of this run, node and iteration, or None."""
        table = self._target(target)
        return self._row(table, statements_of(table).get, checks.lookup_place(run_id, node_id, iteration))

    def find_latest(self, target: OutputTable[M] | str, run_id: str, node_id: str) -> Output[M] | None:
        """Return the output of the node's highest iteration in this run, or None."""
        table, place = self._target(target), checks.lookup_place(run_id, node_id, 0)
        values = {"run_id": place["run_id"], "node_id": place["node_id"]}
        return self._row(table, statements_of(table).latest, values)

    def list(
        self,
        target: OutputTable[Any] | str,
        *,
        run_id: str | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[OutputSummary]:
        """Return a page of the table's rows without their content, newest first."""
        table = self._target(target)
        given = _filters(run_id, node_id)
        listing = statements_of(table).newest
        return self._there(
            table, lambda: self._page_as(listing, lambda row: summary(table, row), given, limit, page_token)
        )

    def load(
        self,
        target: OutputTable[M] | str,
        run_id: str,
        *,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Output[M]]:
        """Return a page of the run's rows with their content, ordered by node and iteration."""
        table = self._target(target)
        given = {**_filters(None, node_id), "run_id": valid.lookup_text("run_id", run_id)}
        listing = statements_of(table).load
        return self._there(
            table, lambda: self._page_as(listing, lambda row: output(table, row), given, limit, page_token)
        )

    def count(self, target: OutputTable[Any] | str, *, run_id: str | None = None, node_id: str | None = None) -> int:
        """Return the number of the table's rows that pass these filters."""
        table = self._target(target)
        given = {name: value for name, value in _filters(run_id, node_id).items() if value is not None}
        statement = statements_of(table).count[frozenset(given)]
        return self._there(table, lambda: int(self._value(statement, given)))

    def withdraw(
        self, target: OutputTable[M] | str, run_id: str, node_id: str, *, iteration: int = 0, reason: str
    ) -> Output[M]:
        """Move a row from its table to the history, for a task that is reset. Returns the row. Raises `NotFound`."""
        table = self._target(target)
        place = checks.lookup_place(run_id, node_id, iteration)
        why, at = checks.reason(reason), self._now()
        found = self._there(table, lambda: self._writing(lambda unit: withdrawn(unit, table, place, why, at)))
        if found is None:
            raise valid.not_found(models.OUTPUT, (table.key, run_id, node_id, iteration))
        return found

    def history(
        self,
        target: OutputTable[Any] | str,
        run_id: str,
        node_id: str,
        *,
        iteration: int = 0,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[OutputRevision]:
        """Return a page of the row's earlier contents, newest first."""
        given = {**checks.lookup_place(run_id, node_id, iteration), "table_name": self._target(target).table_name}
        return self._page(HISTORY_LIST, given, limit, page_token)

    def _put(self, table: OutputTable[Any], place: Place, content: Content, at: Any) -> Output[Any]:
        insert, row = statements_of(table).insert, parameters(place, content, at)
        for _ in range(_ATTEMPTS):
            if self._once(lambda unit: unit.change(insert, row), repeatable=True):
                return written_output(table, place, content, at, at)
            found = self._writing(lambda unit: replace_row(unit, table, place, content, at), repeatable=True)
            if found is not None:
                return found
        raise LostRace(f"the row was withdrawn {_ATTEMPTS} times while it was written")

    def _row(self, table: OutputTable[Any], statement: Statement, place: Values) -> Output[Any] | None:
        try:
            found = self._reading(lambda unit: unit.row(statement, place))
        except CorruptData as error:
            raise at_place(error, place) from error
        except BackendError as error:
            self._refuse_gone(table, error)
            raise
        return None if found is None else output(table, found)


def _filters(run_id: Any, node_id: Any) -> Row:
    given = {"run_id": run_id, "node_id": node_id}
    return {name: None if value is None else valid.lookup_text(name, value) for name, value in given.items()}


def _refuse_iteration(table: OutputTable[Any], iteration: int) -> None:
    if iteration and not table.has_iteration:
        raise InvalidValue("iteration", f"the table {table.table_name!r} has no column for iterations")
