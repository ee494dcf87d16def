"""Guards: triggers that refuse a statement in the database itself, whoever sends it. Declared beside the models.

Revisions spell the triggers out in SQL for each product. Tests render the declared guards and compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import MetaData

from lastlight_state.db.base import Base

Event = Literal["insert", "update", "delete", "truncate"]

_KEY = "guards"


@dataclass(frozen=True)
class Guard:
    """One refusal: which statements on which table, and when.

    ``when`` is a condition over ``OLD`` and ``NEW``, in which ``IS DISTINCT FROM`` compares with NULL as a value.
    ``of`` are the columns whose update is refused, all if empty. ``permit``: maintenance that holds a permit may do it,
    any permit or that of a reset. ``only`` names the one product that needs the guard.
    """

    name: str
    table: str
    event: Event
    message: str
    when: str | None = None
    permit: Literal["any", "reset"] | None = None
    of: tuple[str, ...] = ()
    only: Literal["sqlite", "postgresql"] | None = None


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


def append_only(table: str, *, permit: Literal["any", "reset"] = "any") -> tuple[Guard, ...]:
    """The guards that refuse DELETE and TRUNCATE on a table, except under a maintenance permit."""
    message = f"{table} is append-only"
    return (
        Guard(f"{table}_no_delete", table, "delete", message, permit=permit),
        Guard(f"{table}_no_truncate", table, "truncate", message, permit=permit),
    )


def no_update(table: str) -> tuple[Guard, ...]:
    """The guard that refuses every UPDATE of a table, permit or not."""
    return (Guard(f"{table}_no_update", table, "update", f"rows of {table} never change"),)


def no_replacement(table: str, *, key: tuple[str, ...] = ("id",), name: str = "", also: str = "") -> tuple[Guard, ...]:
    """The guard that refuses to insert an existing key, NULL being none.

    On SQLite ``INSERT OR REPLACE`` deletes the old row without a delete trigger, unless ``recursive_triggers`` is on,
    which a stray connection does not have. Postgres has no such statement. ``name`` tells the guards of several keys
    apart; ``also`` is the predicate of a partial key.
    """
    same = " AND ".join([*(f"{column} = NEW.{column}" for column in key), *([also] if also else [])])
    when = f"EXISTS (SELECT 1 FROM {table} WHERE {same})"
    guard = f"{table}_no_replace" + (f"_{name}" if name else "")
    return (Guard(guard, table, "insert", f"that row of {table} exists", when=when, only="sqlite"),)


def _declared(metadata: MetaData) -> dict[str, Guard]:
    found: dict[str, Guard] = metadata.info.setdefault(_KEY, {})
    return found
