"""An operation for revisions: ``op.refuse_rows(query, message)`` stops the upgrade if the query finds a row.

Revisions read no rows. With this operation, a revision that changes rows can state a precondition. Importing this
module registers the operation with Alembic.
"""

from __future__ import annotations

from typing import Self

from alembic.operations import MigrateOperation, Operations
from sqlalchemy import text

from lastlight_state.backends.sql.expressions import refusal
from lastlight_state.errors import SchemaMismatch

MOST = 20


@Operations.register_operation("refuse_rows")
class RefuseRows(MigrateOperation):
    """Raises `SchemaMismatch` with ``message`` if ``query`` finds a row; the error lists up to 20 rows."""

    def __init__(self, query: str, message: str) -> None:
        self.query = query
        self.message = message

    @classmethod
    def refuse_rows(cls, operations: Operations, query: str, message: str) -> Self:
        operation = cls(query, message)
        operations.invoke(operation)
        return operation


@Operations.implementation_for(RefuseRows)
def _refuse_rows(operations: Operations, operation: RefuseRows) -> None:
    context = operations.get_context()
    if context.as_sql:
        for statement in refusal(context.dialect.name, operation.query, operation.message):
            context.impl.static_output(f"{statement};")
        return
    found = operations.get_bind().execute(text(operation.query)).fetchmany(MOST)
    if found:
        listed = [", ".join(repr(value) for value in row) for row in found]
        raise SchemaMismatch(operation.message, differences=listed)
