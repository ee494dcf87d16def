"""SQL for administrators: an upgrade of a Postgres schema as a script, and the rights of a role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.dialects.postgresql.base import PGDialect

from lastlight_state.backends.hosted import lock_number
from lastlight_state.backends.sql.quoting import quoted

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

_preparer = PGDialect(paramstyle="named").identifier_preparer  # type: ignore[no-untyped-call]


def framed(body: str, schema: str, *, exists: bool, lock_timeout: float, ddl_wait: float) -> str:
    """The statements in one transaction that enters the schema and holds the migration lock."""
    place = [] if exists else [f"CREATE SCHEMA {quoted(schema)}"]
    before = [
        "BEGIN",
        f"SET LOCAL lock_timeout = {int(lock_timeout * 1000)}",
        f"SELECT pg_advisory_xact_lock({lock_number(schema, 'migration')})",
        f"SET LOCAL lock_timeout = {int(min(lock_timeout, ddl_wait) * 1000)}",
        *place,
        f"SET LOCAL search_path TO {quoted(schema)}, pg_temp",
    ]
    return "".join(f"{statement};\n\n" for statement in before) + f"{body}\n\nCOMMIT;\n"


def grants(role: str, database: str, schema: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The statements that give the role these rights on each table, with CONNECT and USAGE to reach them."""
    to, home = _preparer.quote(role), _preparer.quote(schema)
    yield f"GRANT CONNECT ON DATABASE {_preparer.quote(database)} TO {to}"
    yield f"GRANT USAGE ON SCHEMA {home} TO {to}"
    for right in RIGHTS:
        tables = [f"{home}.{_preparer.quote(table)}" for table, given in rights.items() if right in given]
        if tables:
            yield f"GRANT {right} ON\n    " + ",\n    ".join(tables) + f"\n    TO {to}"
