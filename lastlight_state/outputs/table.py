"""The handle of an output table: a frozen description that is bound to no connection."""

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
from lastlight_state.outputs.shapes import OutputColumn, Shape, described, schema_text

M = TypeVar("M")


@dataclass(frozen=True)
class OutputTable(Generic[M]):
    """An output table as this process knows it. Handles are equal when they describe the same.

    ``columns`` are the declared ones, the library's own first; ``extra_columns`` are in the database and not in the
    model. ``model`` is None for a key that another process has defined: such a handle reads and does not write.
    """

    key: str
    table_name: str
    kind: Kind
    columns: tuple[OutputColumn, ...]
    signature: str
    model_digest: str | None
    #: The table for SQLAlchemy statements of your own.
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
        """True if the whole value stands in the one column ``payload``."""
        return len(self.domain) == 1 and self.domain[0].name == models.PAYLOAD and self.domain[0].type == "json"

    @cached_property
    def domain(self) -> tuple[OutputColumn, ...]:
        """Return the columns of what the task produced."""
        return tuple(column for column in self.columns if column.field is not None)

    @cached_property
    def has_iteration(self) -> bool:
        """True if rows have iterations: tables of the caller's making may have none."""
        return "iteration" in self.table.c

    @cached_property
    def has_times(self) -> tuple[bool, bool]:
        """Return whether rows say when they were made, and when they were last written."""
        return "row_created_at" in self.table.c, "row_updated_at" in self.table.c

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the field and the column of each part of what the task produced."""
        return tuple((str(column.field), column.name) for column in self.domain)

    @property
    def writable(self) -> bool:
        """True if this process knows what may be written."""
        return self.shape is not None or self.kind == "custom"

    def prompt_schema(self) -> str:
        """Return the model's JSON Schema as text, the same in every process: the caller's fields and nothing else."""
        return schema_text(self._known_shape().json_schema)

    def describe(self) -> list[dict[str, Any]]:
        """Return the fields in order: name, column, type, required, nullable, default, description, enum values.

        What has no simple type is ``unknown``, with a ``warning``.
        """
        return described(self._known_shape())

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
    """Return the SQLAlchemy table of an output table, in metadata of its own. ``is_foreign``: a caller made it."""
    metadata = sa.MetaData(naming_convention=NAMING)
    sa.Table("workflow_runs", metadata, sa.Column("id", TYPES["text"], primary_key=True))
    made = [_sql_column(column, (comments or {}).get(column.name), is_foreign=is_foreign) for column in columns]
    table = sa.Table(name, metadata, *made, sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"]), comment=comment)
    known = table.c
    if set(models.BOOKKEEPING[:4]).issubset(known.keys()):  # a table of the caller's making may have some of them
        sa.Index(f"ix_{name}_written", known.row_created_at, known.run_id, known.node_id, known.iteration)
        # Without it a page of one run reads and sorts all rows of the run, large columns beside.
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
