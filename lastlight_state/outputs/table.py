"""The handle of an output table: a frozen description without a connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from lastlight_state.db.schema.base import NAMING
from lastlight_state.db.schema.columns import Timestamp
from lastlight_state.errors import MisuseError
from lastlight_state.outputs import models
from lastlight_state.outputs.column_types import TYPES
from lastlight_state.outputs.models import Kind
from lastlight_state.outputs.shapes import OutputColumn, Shape, field_descriptions, schema_text

M = TypeVar("M")


@dataclass(frozen=True)
class OutputTable(Generic[M]):
    """An output table as this process knows it. Handles are equal if they describe the same table.

    ``columns`` are the declared columns, with the library's own first. ``extra_columns`` are in the database but not in
    the model. ``model`` is None for a key that only another process has defined: such a handle can read, but not write.
    """

    key: str
    table_name: str
    kind: Kind
    columns: tuple[OutputColumn, ...]
    signature: str
    model_digest: str | None
    #: The SQLAlchemy table, for statements of your own.
    table: sa.Table = field(compare=False, repr=False)
    shape: Shape | None = field(default=None, compare=False, repr=False)
    extra_columns: tuple[str, ...] = field(default=(), compare=False)
    max_bytes: int = field(default=models.ROW, compare=False)

    @property
    def model(self) -> type[M] | None:
        """Return the model, or None for an untyped handle."""
        return None if self.shape is None else self.shape.model

    @cached_property
    def is_payload(self) -> bool:
        """True if the whole value is stored in one JSON column, ``payload``."""
        return len(self.domain) == 1 and self.domain[0].name == models.PAYLOAD and self.domain[0].type == "json"

    @cached_property
    def domain(self) -> tuple[OutputColumn, ...]:
        """Return the columns for the task's fields, without the library's own columns."""
        return tuple(column for column in self.columns if column.field is not None)

    @cached_property
    def has_iteration(self) -> bool:
        """True if rows have an iteration. Tables that callers made may have none."""
        return "iteration" in self.table.c

    @cached_property
    def has_times(self) -> tuple[bool, bool]:
        """Return two flags: True if rows have a creation time, and True if they have a time of the last write."""
        return "row_created_at" in self.table.c, "row_updated_at" in self.table.c

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of field and column names, one for each domain column."""
        return tuple((str(column.field), column.name) for column in self.domain)

    @property
    def writable(self) -> bool:
        """True if this process can write: it has the model, or a caller made the table."""
        return self.shape is not None or self.kind == "custom"

    def prompt_schema(self) -> str:
        """Return the JSON Schema of the model as text, the same in every process, without the library's own columns."""
        return schema_text(self._known_shape().json_schema)

    def describe(self) -> list[dict[str, Any]]:
        """Return the description of each field in order.

        A description has name, column, type, required, nullable, default, description and enum values. The type of a
        field without a simple type is ``unknown``, with a ``warning``.
        """
        return field_descriptions(self._known_shape())

    def _known_shape(self) -> Shape:
        if self.shape is None:
            raise MisuseError(f"output {self.key!r} has no model in this process: define it with its model first")
        return self.shape


def sql_table(
    name: str,
    columns: Sequence[OutputColumn],
    *,
    comment: str | None = None,
    comments: dict[str, str] | None = None,
    is_foreign: bool = False,
) -> sa.Table:
    """Return the SQLAlchemy table of an output table, in separate metadata.

    ``is_foreign`` is True if a caller made the table.
    """
    metadata = sa.MetaData(naming_convention=NAMING)
    sa.Table("workflow_runs", metadata, sa.Column("id", TYPES["text"], primary_key=True))
    made = [_sql_column(column, (comments or {}).get(column.name), is_foreign=is_foreign) for column in columns]
    table = sa.Table(name, metadata, *made, sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"]), comment=comment)
    known = table.c
    if set(models.BOOKKEEPING[:4]).issubset(known.keys()):  # a table that a caller made may lack some of them
        sa.Index(f"ix_{name}_written", known.row_created_at, known.run_id, known.node_id, known.iteration)
        # Without this index a page of one run reads and sorts all rows of the run, with their large columns.
        sa.Index(f"ix_{name}_run", known.run_id, known.row_created_at, known.node_id, known.iteration)
    return table


def _sql_column(column: OutputColumn, comment: str | None, *, is_foreign: bool) -> sa.Column[Any]:
    default = sa.text("0") if column.name == "iteration" and column.primary_key else None
    is_ordered = column.name in models.BOOKKEEPING and column.type == "timestamp" and not is_foreign
    return sa.Column(
        column.name,
        Timestamp if is_ordered else TYPES[column.type],
        primary_key=column.primary_key,
        nullable=column.nullable,
        server_default=default,
        autoincrement=False,
        comment=comment,
    )
