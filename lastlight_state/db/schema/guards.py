"""Guards: database triggers that refuse a statement, whichever program sends it. They are declared next to the models.

Revisions contain the triggers as SQL for each product. Tests compare these with the SQL generated from the
declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Column, MetaData, Table

from lastlight_state.backends.sql.expressions import literal
from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.columns import Timestamp
from lastlight_state.db.schema.declarations import vocabularies

# Reactions: triggers that change other rows after a row was written, whoever wrote it. Declared beside the models.
#
# Revisions spell the triggers out in SQL for each product. Tests render the declared reactions and compare the two.

_REACTIONS = "reactions"
_DERIVED = "derived_rows"

#: The statements after which a reaction runs, with the names (OLD, NEW) by which it finds the rows to change.
EVENTS = {"insert": "NEW.{key}", "update": "OLD.{key}, NEW.{key}", "delete": "OLD.{key}"}


@dataclass(frozen=True)
class Reaction:
    """A change of rows in ``target`` when a row of ``table`` is written or deleted: of those with that row's ``key``.

    ``says`` describes the change on the schema's page. ``sets`` and ``when`` are SQL for both products; without
    ``when``, all these rows change. ``function`` is the name of the function that Postgres needs. ``only`` names the
    one product that needs the reaction.
    """

    name: str
    table: str
    target: str
    key: str
    sets: str
    when: str
    says: str
    function: str
    only: Literal["sqlite", "postgresql"] | None = None

    def statement(self, keys: str) -> str:
        """Return the UPDATE of the rows with these keys, which are SQL such as ``OLD.name``."""
        change = f"UPDATE {self.target} SET {self.sets} WHERE {self.key} IN ({keys})"
        return f"{change} AND {self.when}" if self.when else change


@dataclass(frozen=True)
class DerivedRow:
    """A ``target`` row for each ``table`` row that meets the condition ``among``, made and removed by triggers.

    ``values`` maps the target's columns to what an insert sets them to, as SQL over ``NEW``; the first column is its
    key. An update that changes a column of ``of`` sets all of them again; columns in ``resets`` get the value given
    there. ``among`` is a condition over ``{row}``, decided by the column ``by``. ``says`` describes the triggers on the
    schema's page. ``functions`` are the names of the two functions that Postgres needs. They run with the rights of
    their owner: a role that may write the table need not have rights on the derived rows.
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
        """Return the statement that inserts the row derived from ``NEW``, or updates it if it exists."""
        own, *others = self.values
        sets = ", ".join(f"{name} = {self.resets.get(name, f'excluded.{name}')}" for name in others)
        return (
            f"INSERT INTO {self.target} ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())}) "
            f"ON CONFLICT ({own}) DO UPDATE SET {sets}"
        )

    @property
    def drop(self) -> str:
        """Return the statement that deletes the row derived from ``OLD``."""
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


def declare_reaction(reaction: Reaction) -> Reaction:
    """Add a reaction to the central schema."""
    Base.metadata.info.setdefault(_REACTIONS, {})[reaction.name] = reaction
    return reaction


def declared_reactions(metadata: MetaData = Base.metadata) -> tuple[Reaction, ...]:
    """Return all reactions of the schema."""
    return tuple(metadata.info.get(_REACTIONS, {}).values())


Event = Literal["insert", "update", "delete", "truncate"]

_KEY = "guards"

#: The names by which a SQLite statement can change the rowid, a key that every table has.
ROWID = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True)
class Guard:
    """One refusal: the statements on a table that a trigger refuses, and the condition under which it refuses them.

    ``when`` is a condition over ``OLD`` and ``NEW``; ``IS DISTINCT FROM`` in it treats NULL as a value. ``of`` are the
    columns whose update is refused; if empty, all are. ``permit`` is the kind of maintenance permit that lifts the
    refusal: any permit, or that of a reset. ``only`` names the one product that needs the guard. With ``replacing``,
    the guard refuses only statements that replace rows.
    """

    name: str
    table: str
    event: Event
    message: str
    when: str | None = None
    permit: Literal["any", "reset"] | None = None
    of: tuple[str, ...] = ()
    only: Literal["sqlite", "postgresql"] | None = None
    replacing: bool = False


@dataclass(frozen=True)
class Key:
    """Columns whose values together are unique in a table.

    With ``among`` (a column and an SQL literal), only rows with that value count. In the columns that ``nullable``
    names, NULL counts as equal to the empty text.
    """

    columns: tuple[str, ...]
    among: tuple[str, str] | None = None
    nullable: tuple[str, ...] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns whose change could give a row the same key as another row."""
        return (*self.columns, *(self.among[:1] if self.among else ()))

    def taken_condition(self, table: str) -> str:
        """Return a condition for a trigger on SQLite: true if another row already has the new row's key."""
        same = [self._equal_condition(column) for column in self.columns]
        some = [f"{{row}}{self.among[0]} = {self.among[1]}"] if self.among else []
        there = " AND ".join([*same, *(one.format(row="") for one in some), "rowid <> OLD.rowid"])
        taken = f"EXISTS (SELECT 1 FROM {table} WHERE {there})"
        return " AND ".join([*(one.format(row="NEW.") for one in some), taken])

    def _equal_condition(self, column: str) -> str:
        if column in self.nullable:
            return f"coalesce({column}, '') = coalesce(NEW.{column}, '')"
        return f"{column} = NEW.{column}"


def declare(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Add guards to the central schema. Trigger names are unique in it."""
    declared = _declared_guards(Base.metadata)
    added = tuple(guards)
    for guard in added:
        if guard.name in declared:
            raise ValueError(f"guard {guard.name} is declared twice")
        declared[guard.name] = guard
    return added


def declared_guards(metadata: MetaData = Base.metadata) -> tuple[Guard, ...]:
    """Return all guards of the schema, in the order of declaration."""
    return tuple(_declared_guards(metadata).values())


def append_only(table: str, *, permit: Literal["any", "reset"] = "any") -> tuple[Guard, ...]:
    """Return the guards that refuse DELETE and TRUNCATE on a table, except under a maintenance permit."""
    message = f"{table} is append-only"
    return (
        Guard(f"{table}_no_delete", table, "delete", message, permit=permit),
        Guard(f"{table}_no_truncate", table, "truncate", message, permit=permit, only="postgresql"),
    )


def no_update(table: str) -> tuple[Guard, ...]:
    """Return the guard that refuses every UPDATE of a table, even under a permit."""
    return (Guard(f"{table}_no_update", table, "update", f"rows of {table} never change"),)


def no_replacement(table: str, *keys: Key) -> tuple[Guard, ...]:
    """Return the guards against ``INSERT OR REPLACE`` and ``UPDATE OR REPLACE``, which delete the key's old row.

    SQLite fires no delete trigger for that row unless ``recursive_triggers`` is on, and it is off on a plain
    connection. Postgres has no such statements. ``keys`` are all keys that an update could make equal to another row's.
    """
    return (*no_replacing_insert(table), _no_replacing_update(table, keys))


def no_replacing_insert(table: str) -> tuple[Guard, ...]:
    """Return only the guard against ``INSERT OR REPLACE``, for tables whose rows are never updated."""
    message = f"rows of {table} are never replaced"
    return (Guard(f"{table}_no_replace", table, "insert", message, only="sqlite", replacing=True),)


def _no_replacing_update(table: str, keys: Sequence[Key]) -> Guard:
    """Return the guard against ``UPDATE OR REPLACE``.

    It refuses an update only if another row has the new key, because it cannot tell the update in an upsert from
    ``UPDATE OR REPLACE``.
    """
    named = dict.fromkeys(column for key in keys for column in key.key_columns)
    return Guard(
        f"{table}_keys_stay",
        table,
        "update",
        f"rows of {table} are never replaced",
        when=" OR ".join(["NEW.rowid <> OLD.rowid", *(f"({key.taken_condition(table)})" for key in keys)]),
        of=(*ROWID, *named),
        only="sqlite",
        replacing=True,
    )


def keep_spelling(metadata: MetaData = Base.metadata) -> tuple[Guard, ...]:
    """Add guards to every table with times. They refuse times in any other spelling than this library's.

    SQLite compares times as texts, so another spelling would sort differently. Call this when all models are loaded. An
    update is refused only if it changes the time.
    """
    made = (guard for table in metadata.sorted_tables for guard in _spelling_of(table))
    return declare(guard for guard in made if guard.name not in _declared_guards(metadata))


def _spelling_of(table: Table) -> Iterator[Guard]:
    names = tuple(column.name for column in table.columns if column.type is Timestamp)
    if not names:
        return
    message = f"times of {table.name} are spelled like 2026-02-03T12:34:56.789Z"
    odd = [f"strftime('%Y-%m-%dT%H:%M:%fZ', NEW.{name}, '+0 days') IS DISTINCT FROM NEW.{name}" for name in names]
    changed = [f"(NEW.{name} IS DISTINCT FROM OLD.{name} AND {one})" for name, one in zip(names, odd, strict=True)]
    yield Guard(f"{table.name}_times_new", table.name, "insert", message, when=" OR ".join(odd), only="sqlite")
    if f"{table.name}_no_update" not in _declared_guards(table.metadata):
        when = " OR ".join(changed)
        yield Guard(f"{table.name}_times_set", table.name, "update", message, when=when, of=names, only="sqlite")


def keep_words(metadata: MetaData = Base.metadata) -> tuple[Guard, ...]:
    """Add guards to every column with a vocabulary. They refuse words outside the vocabulary.

    A later revision extends a vocabulary by replacing its guards, whereas SQLite could never remove a CHECK. Call this
    when all models are loaded. An update is refused only if it changes the word. A copy between databases holds a
    permit, so it keeps unknown words. So does a load that permits them.
    """
    words = vocabularies(metadata.sorted_tables)
    return declare(guard for column, known in words for guard in _words_of(column, known))


def _words_of(column: Column[Any], words: Iterable[str]) -> Iterator[Guard]:
    table, name = column.table.name, column.name
    known = sorted(words)
    message = f"{name} of {table} is one of: {', '.join(known)}"
    odd = f"NEW.{name} NOT IN ({', '.join(map(literal, known))})"
    yield Guard(f"{table}_{name}_word_new", table, "insert", message, when=odd, permit="any")
    if f"{table}_no_update" not in _declared_guards(column.table.metadata):
        changed = f"NEW.{name} IS DISTINCT FROM OLD.{name} AND {odd}"
        yield Guard(f"{table}_{name}_word_set", table, "update", message, when=changed, of=(name,), permit="any")


def _declared_guards(metadata: MetaData) -> dict[str, Guard]:
    found: dict[str, Guard] = metadata.info.setdefault(_KEY, {})
    return found
