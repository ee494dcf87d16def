"""Records that the calls of this domain return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from lastlight_state.db.rows.records import Record
from lastlight_state.errors import MisuseError, NotFound
from lastlight_state.outputs import models
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import instance_of

B = TypeVar("B", bound=BaseModel)
M = TypeVar("M")


class RunInputSummary(Record):
    """A revision of a run's input, without the payload. ``reason`` is why it was overridden; None for revision 0."""

    run_id: str
    revision: int
    created_at: datetime
    created_by: str | None
    reason: str | None


class RunInput(RunInputSummary):
    """A revision of a run's input, validated if a model was given when it was stored."""

    payload: dict[str, Any]

    def parse(self, model: type[B]) -> B:
        """Return the payload as an instance of the model. Raises pydantic's own error if it does not fit."""
        return model.model_validate(self.payload, by_alias=False, by_name=True)


class OutputTableSummary(Record):
    """An output table as the registry lists it."""

    key: str
    table_name: str
    kind: str
    signature: str
    model_digest: str | None
    created_at: datetime
    updated_at: datetime


class OutputPlan(Record):
    """The plan of a definition: ``create`` the table, ``add`` columns, or fail with ``differences``.

    ``sql`` holds the statements to do it by hand, in one transaction. It is empty if there is nothing to do.
    """

    key: str
    table_name: str
    create: bool
    add: tuple[str, ...]
    differences: tuple[str, ...]
    warnings: tuple[str, ...]
    sql: tuple[str, ...]


class OutputSummary(Record):
    """A row of an output table without its content: which task produced it, and when."""

    key: str
    table_name: str
    run_id: str
    node_id: str
    iteration: int
    created_at: datetime | None
    updated_at: datetime | None


class _Typed(Record, Generic[M]):
    """A record whose content can be converted to an instance of its table's model."""

    data: Any

    _computed = frozenset({"data"})

    def __getstate__(self) -> dict[Any, Any]:
        """Return the pickled state, without the table's model. Another process reads the record by ``data``."""
        return {**super().__getstate__(), "__pydantic_private__": None}

    @property
    def value(self) -> M:
        """Return the content as an instance of the model as the program defines it now.

        Raises `InvalidValue` with ``issues`` for a row that was written under an earlier shape and does not fit, and
        `MisuseError` if this process has not defined the key. ``data`` can be read in both cases.
        """
        table: OutputTable[M] | None = (self.__pydantic_private__ or {}).get("table")
        if table is None or table.shape is None:
            raise MisuseError("this output has no model in this process: read `data`, or define its key with a model")
        instance: M = instance_of(table.shape, self.data)
        return instance


class Output(_Typed[M], Generic[M]):
    """A row that a task produced. ``data`` holds the fields by name, or the payload."""

    key: str
    table_name: str
    run_id: str
    node_id: str
    iteration: int
    created_at: datetime | None
    updated_at: datetime | None


class OutputRevision(Record):
    """A former content of a row of an output table.

    ``value`` is its content as JSON; ``cause`` is ``replaced`` or ``withdrawn``.
    """

    table_name: str
    run_id: str
    node_id: str
    iteration: int
    revision: int
    signature: str
    cause: str
    reason: str | None
    written_at: datetime
    removed_at: datetime
    value: Any


class CacheSummary(Record):
    """An entry of the cache, without its payload."""

    cache_key: str
    workflow_name: str
    node_id: str
    output_key: str
    table_name: str
    schema_signature: str
    agent_signature: str | None
    source_run_id: str | None
    created_at: datetime
    expires_at: datetime | None


class CachedOutput(_Typed[M], Generic[M]):
    """A cached result. ``data`` holds the fields by name, or the payload. The record has no run, node or iteration."""

    cache_key: str
    source_run_id: str | None
    created_at: datetime
    expires_at: datetime | None


class QueryRows(Record):
    """The rows of a query, with values as the database holds them. ``truncated`` is True if there were more rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool


class RunOutputs(Mapping[str, tuple[Output[Any], ...]]):
    """The rows of a run, by schema key and by table name. Both names of a table give the same tuple of rows."""

    def __init__(self, rows: Mapping[str, tuple[Output[Any], ...]]) -> None:
        self._rows = dict(rows)

    def __getitem__(self, name: str) -> tuple[Output[Any], ...]:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"RunOutputs({ {name: len(rows) for name, rows in self._rows.items()} })"


class RunSnapshot:
    """The input and all outputs of a run at one moment. Its methods do not query the database."""

    __slots__ = ("_by_place", "input", "input_revision", "outputs", "run_id")

    def __init__(self, run_id: str, given: RunInput | None, outputs: Mapping[str, tuple[Output[Any], ...]]) -> None:
        self.run_id = run_id
        self.input = None if given is None else given.payload
        self.input_revision = None if given is None else given.revision
        self.outputs = RunOutputs(outputs)
        self._by_place = {(name, row.node_id, row.iteration): row for name, rows in outputs.items() for row in rows}

    def __repr__(self) -> str:
        return f"RunSnapshot(run_id={self.run_id!r}, input_revision={self.input_revision}, {self.outputs!r})"

    def get(self, target: OutputTable[M] | str, node_id: str, iteration: int = 0) -> Output[M]:
        """Return the row of this table, node and iteration. Raises `NotFound`."""
        found = self.find(target, node_id, iteration)
        if found is None:
            raise NotFound(models.OUTPUT, (_name(target), self.run_id, node_id, iteration))
        return found

    def find(self, target: OutputTable[M] | str, node_id: str, iteration: int = 0) -> Output[M] | None:
        """Return the row of this table, node and iteration, or None."""
        return self._by_place.get((_name(target), node_id, iteration))

    def find_latest(self, target: OutputTable[M] | str, node_id: str) -> Output[M] | None:
        """Return the row of this table and node with the highest iteration, or None."""
        rows = [row for row in self.outputs.get(_name(target), ()) if row.node_id == node_id]
        return rows[-1] if rows else None


def _name(target: OutputTable[Any] | str) -> str:
    return target if isinstance(target, str) else target.key


def with_table(record: Any, table: OutputTable[Any]) -> Any:
    """Attach a table to a record and return the record. The table's model converts the record's ``value``."""
    object.__setattr__(record, "__pydantic_private__", {"table": table})
    return record
