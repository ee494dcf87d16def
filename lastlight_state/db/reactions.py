"""Reactions: triggers that change other rows after a row was written, whoever writes it. Declared beside the models.

Revisions spell the triggers out in SQL for each product. Tests render the declared reactions and compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import MetaData

from lastlight_state.db.base import Base

_KEY = "reactions"
_DERIVED = "derived_rows"

#: After which statements a reaction runs, and by which names it finds the rows to change.
EVENTS = {"insert": "NEW.{key}", "update": "OLD.{key}, NEW.{key}", "delete": "OLD.{key}"}


@dataclass(frozen=True)
class Reaction:
    """A change of the rows of ``target`` that have the ``key`` of a row of ``table`` which was written or deleted.

    ``says``: what it does, for the schema's page. ``sets`` and ``when`` are SQL for both products. ``function`` is the
    name of the function that Postgres needs.
    """

    name: str
    table: str
    target: str
    key: str
    sets: str
    when: str
    says: str
    function: str

    def statement(self, keys: str) -> str:
        """The change of the rows with these keys, ``OLD.name`` for example."""
        return f"UPDATE {self.target} SET {self.sets} WHERE {self.key} IN ({keys}) AND {self.when}"


@dataclass(frozen=True)
class DerivedRow:
    """A row of ``target`` beside each row of ``table`` of which ``among`` holds, made and removed by triggers.

    ``values`` are the columns of that row and what an insert sets them to, over ``NEW``; the first is its key. An
    update of a column of ``of`` that changes it sets all of them again, those in ``resets`` to what that says.
    ``among`` is a condition over ``{row}``; the column ``by`` decides it. ``says``: what the triggers do, for the
    schema's page. ``functions`` are the names of the two functions that Postgres needs. They run with the rights of
    their owner: who may write the table need not know its derived rows.
    """

    name: str
    table: str
    target: str
    key: str
    values: Mapping[str, str]
    by: str
    among: str
    of: tuple[str, ...]
    says: str
    functions: tuple[str, str]
    resets: Mapping[str, str] = field(default_factory=dict)

    @property
    def put(self) -> str:
        """Return the statement that makes the row that is derived from ``NEW``, or sets it again."""
        own, *others = self.values
        sets = ", ".join(f"{name} = {self.resets.get(name, f'excluded.{name}')}" for name in others)
        return (
            f"INSERT INTO {self.target} ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())}) "
            f"ON CONFLICT ({own}) DO UPDATE SET {sets}"
        )

    @property
    def drop(self) -> str:
        """Return the statement that removes the row that is derived from ``OLD``."""
        return f"DELETE FROM {self.target} WHERE {next(iter(self.values))} = OLD.{self.key}"

    def triggers(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield the name, event, condition, statement and function of each trigger."""
        put, drop = self.functions
        new, old = (self.among.format(row=row) for row in ("NEW.", "OLD."))
        differs = " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in self.of)
        yield f"{self.name}_insert", "INSERT", new, self.put, put
        yield f"{self.name}_update", f"UPDATE OF {', '.join(self.of)}", f"{new} AND ({differs})", self.put, put
        yield f"{self.name}_end", f"UPDATE OF {self.by}", f"{old} AND NOT ({new})", self.drop, drop
        yield f"{self.name}_delete", "DELETE", old, self.drop, drop


def declare_derived(derived: DerivedRow) -> DerivedRow:
    """Add derived rows to the central schema."""
    Base.metadata.info.setdefault(_DERIVED, {})[derived.name] = derived
    return derived


def declared_derived_rows(metadata: MetaData = Base.metadata) -> tuple[DerivedRow, ...]:
    """Return all derived rows of the schema."""
    return tuple(metadata.info.get(_DERIVED, {}).values())


def declare(reaction: Reaction) -> Reaction:
    """Add a reaction to the central schema."""
    Base.metadata.info.setdefault(_KEY, {})[reaction.name] = reaction
    return reaction


def declared_reactions(metadata: MetaData = Base.metadata) -> tuple[Reaction, ...]:
    """All reactions of the schema."""
    return tuple(metadata.info.get(_KEY, {}).values())
