"""Plans of definitions: a plan does nothing, adds tables or columns, or is refused with every difference listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.base import Backend
from lastlight_state.db import reconcile, valid
from lastlight_state.db.reconcile import Difference, PresentTable
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, SchemaMismatch
from lastlight_state.outputs import column_types, models
from lastlight_state.outputs.catalog import definitions
from lastlight_state.outputs.catalog.definitions import (
    DefinitionRequest,
    Registered,
    column_differences,
    refuse_collisions,
)
from lastlight_state.outputs.column_types import signature
from lastlight_state.outputs.models import REGISTRY, Token
from lastlight_state.outputs.records import OutputPlan
from lastlight_state.outputs.shapes import BOOKKEEPING, OutputColumn, Shape, shape_of
from lastlight_state.outputs.table import OutputTable, sql_table

# Making the handle of a caller's model or table. Neither reads nor writes the database.

#: The token of a column in a caller-made table, by the first class that fits.
_TOKENS: tuple[tuple[type[sa.types.TypeEngine[Any]], Token], ...] = (
    (sa.Boolean, "boolean"),
    (sa.Integer, "integer"),
    (sa.Float, "real"),
    (sa.Numeric, "decimal"),
    (sa.DateTime, "timestamp"),
    (sa.JSON, "json"),
    (sa.LargeBinary, "blob"),
    (sa.String, "text"),
)


def checked_names(key: Any, table: Any) -> tuple[str, str]:
    """Check the key and table name of a definition, and return both. Reserved table names are not refused here."""
    checked = column_types.key(key)
    if table is None:
        return checked, column_types.table_name("key", column_types.snake_case(checked))
    return checked, column_types.table_name("table", table)


def request_of(key: str, name: str, model: Any, max_bytes: Any) -> DefinitionRequest:
    """Return the request for a definition with this key and table name. Both have been checked before."""
    shape = shape_of(model)
    limit = models.ROW if max_bytes is None else valid.number("max_bytes", max_bytes, least=1, most=models.LARGEST_ROW)
    columns = (*BOOKKEEPING, *shape.columns)
    made: OutputTable[Any] = OutputTable(
        key=key,
        table_name=name,
        kind=shape.kind,
        columns=columns,
        signature=signature(name, columns),
        model_digest=shape.model_digest,
        table=sql_table(name, columns),
        shape=shape,
        max_bytes=limit,
    )
    return DefinitionRequest(made, shape, shape.json_schema)


def attach_request(key: str, table: Any, model: Any) -> DefinitionRequest:
    """Return the request to attach a table that a caller made."""
    own = getattr(table, "__table__", table)
    if not isinstance(own, sa.Table):
        raise InvalidValue("table", f"expected a SQLAlchemy Table or declarative class, got {type(table).__name__}")
    name = column_types.any_table_name("table", own.name)
    missing = [name for name in ("run_id", "node_id") if name not in own.c]
    if missing:
        raise SchemaMismatch(
            f"the table {own.name!r} lacks columns that outputs need",
            differences=[f"column {name}" for name in missing],
        )
    shape = None if model is None else shape_of(model)
    columns = tuple(_column(column, shape) for column in own.columns)
    made: OutputTable[Any] = OutputTable(
        key=key,
        table_name=name,
        kind="custom",
        columns=columns,
        signature=signature(name, columns),
        model_digest=None if shape is None else shape.model_digest,
        table=own,
        shape=shape,
    )
    return DefinitionRequest(made, shape, None if shape is None else shape.json_schema)


def _column(column: sa.Column[Any], shape: Shape | None) -> OutputColumn:
    name = column_types.any_table_name("column", column.name)
    fields = {} if shape is None else {known.name: known.field for known in shape.columns}
    field = None if name in models.BOOKKEEPING else fields.get(name, name)
    token = _token(name, column.type)
    return OutputColumn(name, field, token, nullable=bool(column.nullable), primary_key=column.primary_key)


def _token(column: str, kind: Any) -> Token:
    own = getattr(kind, "impl_instance", kind)
    found = next((token for base, token in _TOKENS if isinstance(own, base)), None)
    if found is None or isinstance(kind, sa.Interval | sa.PickleType) or getattr(own, "enum_class", None) is not None:
        accepted = "text, integers, floats, decimals, booleans, times, JSON and bytes"
        raise InvalidValue(
            column, f"outputs cannot be stored in a column of type {type(kind).__name__}: {accepted} can"
        )
    return found


_HINT = "only additions are automatic: migrate by hand, take a new key, or start with a fresh table"


@dataclass(frozen=True)
class Steps:
    """The steps of one definition. ``columns`` are the columns that the registry lists for the table afterwards."""

    wish: DefinitionRequest
    columns: tuple[OutputColumn, ...]
    create: bool
    add: tuple[str, ...]
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    sql: tuple[str, ...]

    def record(self) -> OutputPlan:
        """Return the plan as a record for callers."""
        return OutputPlan(
            key=self.wish.key,
            table_name=self.wish.table_name,
            create=self.create,
            add=self.add,
            differences=tuple(map(str, self.differences)),
            warnings=self.warnings,
            sql=self.sql,
        )

    def refuse_differences(self) -> None:
        """Raise `SchemaMismatch` if there are differences that cannot be resolved by adding tables or columns."""
        if self.differences:
            raise SchemaMismatch(
                f"output {self.wish.key!r} does not fit its table; {_HINT}", differences=self.differences
            )


def is_complete(wish: DefinitionRequest, known: Registered | None) -> bool:
    """True if the table is registered with all columns of the request. Then the database need not be inspected."""
    if known is None or (known.kind, known.table_name) != (wish.made.kind, wish.table_name):
        return False
    there = {column.name: column.type for column in known.columns}
    return all(there.get(column.name) == column.type for column in wish.made.columns)


def all_steps(unit: Unit, wishes: Sequence[DefinitionRequest], at: datetime) -> list[Steps]:
    """Return what these definitions would do to the database as it is now."""
    known = {found.key: found for found in unit.rows(definitions.ALL)}
    for wish in wishes:
        others = [(found.key, found.table_name) for found in known.values()]
        refuse_collisions(wish.made, others + [(other.key, other.table_name) for other in wishes])
    todo = [wish for wish in wishes if not is_complete(wish, known.get(wish.key))]
    present = reconcile.present(unit, [wish.table_name for wish in todo]) if todo else {}
    return [
        _steps(unit, wish, known.get(wish.key), present.get(wish.table_name), at)
        if wish in todo
        else _no_steps(wish, known[wish.key])
        for wish in wishes
    ]


def carry_out(unit: Unit, steps: Steps) -> None:
    """Run the statements of the steps. Raises `SchemaMismatch` if there are differences."""
    steps.refuse_differences()
    for statement in steps.sql:
        unit.control(statement)


def attachable(unit: Unit, wish: DefinitionRequest) -> Registered | None:
    """Return the registry row of a table that a caller made, or None if the table is not registered.

    Raises `SchemaMismatch` for a table that cannot hold outputs.
    """
    known = unit.rows(definitions.ALL)
    refuse_collisions(wish.made, [(found.key, found.table_name) for found in known])
    found = reconcile.present(unit, [wish.table_name]).get(wish.table_name)
    wrong = tuple(_unattachable(wish, found))
    if wrong:
        raise SchemaMismatch(f"the table {wish.table_name!r} cannot hold outputs", differences=wrong)
    return next((found for found in known if found.key == wish.key), None)


def attach(unit: Unit, wish: DefinitionRequest, at: datetime) -> None:
    """Insert or update the registry row of a table that a caller made."""
    unit.named_lock("outputs")
    known = attachable(unit, wish)
    if known is not None and (known.kind, known.table_name) != ("custom", wish.table_name):
        found = f"{known.kind} {known.table_name}"
        raise SchemaMismatch(
            f"output {wish.key!r} is another table; {_HINT}",
            differences=[Difference(wish.table_name, None, "table", f"custom {wish.table_name}", found)],
        )
    name = reconcile.name_of(REGISTRY, unit.backend)
    unit.control(
        definitions.registry_statement(name, wish.made, wish.made.columns, wish.json_schema, known=known, at=at)
    )


def _unattachable(wish: DefinitionRequest, found: PresentTable | None) -> Iterator[Difference]:
    table = wish.table_name
    if found is None or not found.is_table:
        yield Difference(table, None, "table", "present", "missing" if found is None else "a view")
        return
    for name in ("run_id", "node_id"):
        if name not in found.columns:
            yield Difference(table, name, "column", "present", "missing")
    key = [name for name in models.BOOKKEEPING[:3] if name in wish.made.table.c]
    if frozenset(key) not in found.unique:
        yield Difference(table, None, "unique key", f"({', '.join(key)})", "none")


def _no_steps(wish: DefinitionRequest, known: Registered) -> Steps:
    return Steps(wish, known.columns, create=False, add=(), differences=(), warnings=(), sql=())


def _steps(
    unit: Unit, wish: DefinitionRequest, known: Registered | None, found: PresentTable | None, at: datetime
) -> Steps:
    backend = unit.backend
    columns = _grown_columns(wish, known, found)
    found_differences = tuple(_differences(wish, known, found, backend))
    table = _declared_table(wish, columns)
    added = () if found is None else tuple(column.name for column in reconcile.missing_columns(table, found))
    statements = [] if found_differences else list(_statements(wish, table, columns, known, found, backend, at))
    return Steps(
        wish=wish,
        columns=columns,
        create=found is None,
        add=added,
        differences=found_differences,
        warnings=tuple(_warnings(unit, wish, known, found, added)),
        sql=tuple(statements),
    )


def _grown_columns(
    wish: DefinitionRequest, known: Registered | None, found: PresentTable | None
) -> tuple[OutputColumn, ...]:
    """Return the columns that the table has afterwards. In an adopted table, the columns of times may be NULL."""
    columns = definitions.union(wish.made.columns, known.columns if known else ())
    if known is not None or found is None:
        return columns
    return tuple(
        OutputColumn(column.name, None, column.type, nullable=True, primary_key=False)
        if column.name in models.BOOKKEEPING[3:] and (there is None or there.nullable)
        else column
        for column in columns
        for there in [found.columns.get(column.name)]
    )


def _declared_table(wish: DefinitionRequest, columns: Sequence[OutputColumn]) -> sa.Table:
    shape = wish.shape
    doc = None if shape is None or not shape.holds_model else shape.model.__doc__
    wanted = [column for column in columns if column in wish.made.columns or column.name in models.BOOKKEEPING]
    return sql_table(wish.table_name, wanted, comment=doc, comments=dict(shape.comments) if shape is not None else None)


def _differences(
    wish: DefinitionRequest, known: Registered | None, found: PresentTable | None, backend: Backend
) -> Iterator[Difference]:
    table = wish.table_name
    if known is not None:
        if known.table_name != table:
            yield Difference(table, None, "table", known.table_name, table)
            return
        if known.kind != wish.made.kind:
            yield Difference(table, None, "kind", wish.made.kind, known.kind)
        yield from column_differences(table, wish.made.columns, known.columns)
        if found is None:
            yield Difference(table, None, "table", "present", "missing, though it is registered")
            return
    if found is not None:
        yield from reconcile.differences(sql_table(table, wish.made.columns), found, backend.dialect)


def _statements(
    wish: DefinitionRequest,
    table: sa.Table,
    columns: Sequence[OutputColumn],
    known: Registered | None,
    found: PresentTable | None,
    backend: Backend,
    at: datetime,
) -> Iterator[str]:
    yield from reconcile.additions(table, found, backend)
    yield definitions.registry_statement(
        reconcile.name_of(REGISTRY, backend), wish.made, columns, wish.json_schema, known=known, at=at
    )


def _warnings(
    unit: Unit, wish: DefinitionRequest, known: Registered | None, found: PresentTable | None, added: Sequence[str]
) -> Iterator[str]:
    if wish.shape is None or found is None or not added:
        return
    declared = {column.name for column in wish.made.columns}
    gone = [column.name for column in (known.columns if known else ()) if column.name not in declared]
    fresh = [column for column in wish.made.domain if column.name in added]
    if gone and fresh:
        yield (
            f"{wish.table_name}: {', '.join(gone)} is no longer in the model and {', '.join(c.name for c in fresh)}"
            " is new: a renamed field is a new, empty column beside the old one"
        )
    required = [str(column.field) for column in fresh if _is_required(wish.shape, column)]
    empty = [str(column.field) for column in fresh if _reads_none(wish.shape, column)]
    any_row = statement_of(
        sa.select(sa.literal_column("1")).select_from(wish.made.table).limit(sa.literal_column("1", sa.Integer))
    )
    if not (required or empty) or unit.row(any_row) is None:
        return
    if required:
        yield (
            f"{wish.table_name}: rows from before have no {', '.join(required)}, which the model requires:"
            " of those rows only `data` can be read"
        )
    if empty:
        yield f"{wish.table_name}: rows from before read None in {', '.join(empty)}, and not the default of the model"


def _reads_none(shape: Shape, column: OutputColumn) -> bool:
    """True if a field may be None and its default is not None."""
    if not shape.holds_model or column.field not in shape.optional:
        return False
    field = shape.model.model_fields[column.field]
    return not field.is_required() and (field.default is not None or field.default_factory is not None)


def _is_required(shape: Shape, column: OutputColumn) -> bool:
    return shape.holds_model and bool(shape.model.model_fields[column.field].is_required())
