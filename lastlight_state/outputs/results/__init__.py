"""Results: the rows that tasks produced, validated before anything is written.

Table, run, node and iteration name a row; an attempt does not, so that a retry replaces what the attempt before it
wrote. Nothing produced is lost: what a row held goes to `output_history` in the unit that replaces or withdraws it.
Bookkeeping comes from the arguments alone, never from the value.
"""

from __future__ import annotations

from typing import Any, TypeVar

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.runs import refuse_unknown_run
from lastlight_state.db.statements import Row, Statement, Values
from lastlight_state.errors import BackendError, Conflict, CorruptData, InvalidValue, LostRace
from lastlight_state.outputs import checks, words
from lastlight_state.outputs.catalog.targets import Targeted
from lastlight_state.outputs.checks import Place
from lastlight_state.outputs.custom import content_for
from lastlight_state.outputs.records import Output, OutputRevision, OutputSummary
from lastlight_state.outputs.results import changes, rows
from lastlight_state.outputs.results.statements import HISTORY_LIST, statements_of
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content

M = TypeVar("M")

#: How often a `put` begins again because the row that it was to replace was withdrawn meanwhile.
_ATTEMPTS = 5


class Results(Targeted):
    """``store.outputs.results``"""

    def put(
        self, target: OutputTable[M] | str, run_id: str, node_id: str, value: Any, *, iteration: int = 0
    ) -> Output[M]:
        """Store what a task produced. The same value again changes nothing; another one replaces the whole row.

        A mapping or an instance is validated by the model first: `InvalidValue` with ``issues``, nothing written.
        A field left out takes its default, never the earlier value. The earlier row goes to the history.
        Raises `PayloadTooLarge` naming the largest field, `NotFound` for an unknown run or key, and `MisuseError` for
        a key that this process has not defined.
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
        """The row. Raises `NotFound`."""
        table = self._target(target)
        found = self._row(table, statements_of(table).get, checks.sought(run_id, node_id, iteration))
        if found is None:
            raise valid.not_found(words.OUTPUT, (table.key, run_id, node_id, iteration))
        return found

    def find(self, target: OutputTable[M] | str, run_id: str, node_id: str, *, iteration: int = 0) -> Output[M] | None:
        """The row, or None."""
        table = self._target(target)
        return self._row(table, statements_of(table).get, checks.sought(run_id, node_id, iteration))

    def find_latest(self, target: OutputTable[M] | str, run_id: str, node_id: str) -> Output[M] | None:
        """The row of the node's highest iteration, or None."""
        table, place = self._target(target), checks.sought(run_id, node_id, 0)
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
        """A page of rows without their content, newest first."""
        table = self._target(target)
        given = _filters(run_id, node_id)
        listing = statements_of(table).newest
        return self._there(
            table, lambda: self._page(listing, lambda row: rows.summary(table, row), given, limit, page_token)
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
        """A page of the run's rows with their content, by node and iteration."""
        table = self._target(target)
        given = {**_filters(None, node_id), "run_id": valid.sought("run_id", run_id)}
        listing = statements_of(table).load
        return self._there(
            table, lambda: self._page(listing, lambda row: rows.output(table, row), given, limit, page_token)
        )

    def count(self, target: OutputTable[Any] | str, *, run_id: str | None = None, node_id: str | None = None) -> int:
        """How many rows there are."""
        table = self._target(target)
        given = {name: value for name, value in _filters(run_id, node_id).items() if value is not None}
        statement = statements_of(table).count[frozenset(given)]
        return self._there(table, lambda: int(self._value(statement, given)))

    def withdraw(
        self, target: OutputTable[M] | str, run_id: str, node_id: str, *, iteration: int = 0, reason: str
    ) -> Output[M]:
        """Take the row out of its table, for a task that is reset; the history keeps it. Raises `NotFound`."""
        table = self._target(target)
        place = checks.sought(run_id, node_id, iteration)
        why, at = checks.reason(reason), self._now()
        found = self._there(table, lambda: self._writing(lambda unit: changes.withdrawn(unit, table, place, why, at)))
        if found is None:
            raise valid.not_found(words.OUTPUT, (table.key, run_id, node_id, iteration))
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
        """A page of what the row held before, newest first."""
        given = {**checks.sought(run_id, node_id, iteration), "table_name": self._target(target).table_name}
        return self._page(HISTORY_LIST, OutputRevision.of, given, limit, page_token)

    def _put(self, table: OutputTable[Any], place: Place, content: Content, at: Any) -> Output[Any]:
        insert, row = statements_of(table).insert, changes.parameters(place, content, at)
        for _ in range(_ATTEMPTS):
            if self._once(lambda unit: unit.change(insert, row), repeatable=True):
                return rows.written(table, place, content, at, at)
            found = self._writing(lambda unit: changes.replaced(unit, table, place, content, at), repeatable=True)
            if found is not None:
                return found
        raise LostRace(f"the row was withdrawn {_ATTEMPTS} times while it was written")

    def _row(self, table: OutputTable[Any], statement: Statement, place: Values) -> Output[Any] | None:
        try:
            found = self._reading(lambda unit: unit.row(statement, place))
        except CorruptData as error:
            raise rows.at_place(error, place) from error
        except BackendError as error:
            self._refuse_gone(table, error)
            raise
        return None if found is None else rows.output(table, found)


def _filters(run_id: Any, node_id: Any) -> Row:
    given = {"run_id": run_id, "node_id": node_id}
    return {name: None if value is None else valid.sought(name, value) for name, value in given.items()}


def _refuse_iteration(table: OutputTable[Any], iteration: int) -> None:
    if iteration and not table.has_iteration:
        raise InvalidValue("iteration", f"the table {table.table_name!r} has no column for iterations")
