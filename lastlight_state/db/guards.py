"""Triggers declared beside the models; the backend renders them.

`declare` hangs a guard on the metadata. Revisions spell the same triggers out in SQL, and the drift check compares
what both leave in a database.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import MetaData

from lastlight_state.backends.triggers import Guard
from lastlight_state.db.base import Base

_KEY = "guards"


def declare(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Add guards to the central schema. Trigger names are unique in it."""
    declared = _declared(Base.metadata)
    added = tuple(guards)
    for guard in added:
        if guard.name in declared:
            raise ValueError(f"guard {guard.name} is declared twice")
        declared[guard.name] = guard
    return added


def declared_guards(metadata: MetaData = Base.metadata) -> tuple[Guard, ...]:
    """All guards of the schema, in the order of declaration."""
    return tuple(_declared(metadata).values())


def append_only(table: str) -> tuple[Guard, ...]:
    """The guards that refuse DELETE and TRUNCATE on a table, except under a maintenance permit."""
    message = f"{table} is append-only"
    return (
        Guard(f"{table}_no_delete", table, "delete", message, permit="any"),
        Guard(f"{table}_no_truncate", table, "truncate", message, permit="any"),
    )


def _declared(metadata: MetaData) -> dict[str, Guard]:
    found: dict[str, Guard] = metadata.info.setdefault(_KEY, {})
    return found
