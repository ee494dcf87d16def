"""What a revision may do: only add. Every revision is recorded, operation by operation, and judged by an allow-list.

Recording runs ``upgrade()`` for one database product without a database: nothing is executed. What is not known to add
is refused, so a new kind of operation is refused until somebody has thought about it.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from alembic.migration import MigrationContext
from alembic.operations import MigrateOperation, Operations, ops
from sqlalchemy import CheckConstraint, Column, Enum, ForeignKey
from sqlalchemy.sql.elements import False_, True_
from support.migrations.additive_sql import problem_with

from lastlight_state.migrations.operations import RefuseRows

IMPORTS = frozenset({"__future__", "alembic", "collections.abc", "sqlalchemy", "sqlalchemy.dialects", "typing"})

_CONSTANT = re.compile(r"'([^']|'')*'|-?\d+(\.\d+)?|true|false", re.IGNORECASE)
_DENIED_CALLS = ("get_bind", "batch_alter_table")


def violations(module: Any, product: str) -> list[str]:
    """What the revision (its module) would do to a database of that product beyond adding; empty for a good one."""
    recorder = _Recorder(product)
    found = [*_in_source(Path(module.__file__)), *_in_names(module)]
    try:
        recorder.run(module.upgrade)
    except _Denied as denied:
        found.append(str(denied))
    created = {operation.table_name for operation in recorder.recorded if isinstance(operation, ops.CreateTableOp)}
    for operation in recorder.recorded:
        found.extend(_judge(operation, module, created))
    return [*found, *recorder.leaks()]


class _Denied(Exception):
    """The revision called what no revision may call."""


class _Recorder:
    """Stands in for a database: takes every operation and executes none."""

    def __init__(self, product: str) -> None:
        self._written = io.StringIO()
        options = {"as_sql": True, "output_buffer": self._written}
        self._context = MigrationContext.configure(dialect_name=product, opts=options)
        self.recorded: list[MigrateOperation] = []

    def run(self, upgrade: Callable[[], None]) -> None:
        with Operations.context(self._context) as operations:
            instance: Any = operations
            instance.invoke = self.recorded.append
            for name in _DENIED_CALLS:
                setattr(instance, name, _denial(name))
            upgrade()

    def leaks(self) -> Iterator[str]:
        """What reached the database past the operations."""
        if self._written.getvalue().strip():
            yield f"executes past op: {self._written.getvalue().strip()!r}"


def _denial(name: str) -> Callable[..., NoReturn]:
    def deny(*_: Any, **__: Any) -> NoReturn:
        raise _Denied(f"calls op.{name}")

    return deny


def _in_source(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or "."]
        else:
            continue
        yield from (f"imports {name}" for name in imported if name not in IMPORTS)


def _in_names(module: Any) -> Iterator[str]:
    if hasattr(module, "downgrade"):
        yield "has a downgrade"


def _judge(operation: MigrateOperation, module: Any, created: set[str]) -> Iterator[str]:
    match operation:
        case ops.CreateTableOp():
            for element in operation.columns:
                yield from _of_table(operation.table_name, element)
        case ops.AddColumnOp():
            yield from _of_column(operation.table_name, operation.column)
        case ops.BulkInsertOp():
            if operation.table.name not in created:
                yield f"inserts rows into {operation.table.name}, which an earlier revision brought"
        case ops.ExecuteSQLOp():
            yield from _of_sql(str(operation.sqltext), module, created)
        case RefuseRows():
            if not operation.query.upper().startswith("SELECT "):
                yield f"refuse_rows reads with {operation.query!r}"
        case ops.CreateIndexOp() | ops.CreateTableCommentOp():
            return
        case _:
            yield f"{type(operation).__name__} is not known to add"


def _of_table(table: str, element: Any) -> Iterator[str]:
    if isinstance(element, CheckConstraint):
        yield f"{table}: a CHECK is as permanent as a column"
    elif isinstance(element, Column):
        yield from _of_type(table, element)


def _of_type(table: str, column: Column[Any]) -> Iterator[str]:
    if isinstance(column.type, Enum):
        yield f"{table}.{column.name}: an ENUM is as permanent as a column"
    if any(isinstance(constraint, CheckConstraint) for constraint in column.constraints):
        yield f"{table}.{column.name}: a CHECK is as permanent as a column"


def _of_column(table: str, column: Column[Any]) -> Iterator[str]:
    yield from _of_type(table, column)
    if column.unique or column.primary_key:
        yield f"{table}.{column.name}: later uniqueness is a unique index"
    if any(isinstance(constraint, ForeignKey) for constraint in column.foreign_keys):
        yield f"{table}.{column.name}: SQLite cannot add a foreign key"
    default = _default(column)
    if default is None and not column.nullable:
        yield f"{table}.{column.name}: NOT NULL without a default"
    if default is not None and not _CONSTANT.fullmatch(default):
        yield f"{table}.{column.name}: the default {default} is no constant"


def _default(column: Column[Any]) -> str | None:
    if column.server_default is None:
        return None
    given: Any = getattr(column.server_default, "arg", column.server_default)
    if isinstance(given, True_ | False_):
        return str(isinstance(given, True_)).lower()
    return repr(given) if isinstance(given, str) else str(given)


def _of_sql(sql: str, module: Any, created: set[str]) -> Iterator[str]:
    if sql not in getattr(module, "additive_sql", ()):
        yield f"SQL that is not declared in additive_sql: {sql!r}"
        return
    backfills, reactions = (
        {step["table"]: tuple(step["columns"]) for step in getattr(module, declared, ())}
        for declared in ("data_steps", "trigger_steps")
    )
    kept = created & {*getattr(module, "trigger_rows", ())}
    problem = problem_with(sql, backfills, reactions, kept)
    if problem is not None:
        yield f"{problem}: {sql!r}"
