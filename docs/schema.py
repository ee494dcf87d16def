"""Makes what the site adds to ``schema.md``: the reference of all tables, from the declared models.

Columns, keys, indexes, guards and reactions come from the models; the revision that brought each table and column comes
from applying the revisions one by one to an empty SQLite file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.db.schema.columns import Timestamp
from lastlight_state.db.schema.declarations import COMMENT_PREFIX, KIB, MIB, Setting, TableFacts, facts_of, is_personal
from lastlight_state.db.schema.guards import EVENTS, ROWID, DerivedRow, Guard, Reaction
from lastlight_state.db.schema.indexes import ONLY
from lastlight_state.migrations import history, migrate
from lastlight_state.migrations.metadata import DERIVED_ROWS, GUARDS, METADATA, REACTIONS
from lastlight_state.settings import Limits

_SQLITE: Any = sqlite.dialect()
_POSTGRES: Any = postgresql.dialect()  # type: ignore[no-untyped-call]

#: The name of a column's type on this page, by its types on SQLite and Postgres.
_TYPES = {
    ("TEXT", "TEXT"): "text",
    ("INTEGER", "BIGINT"): "integer",
    ("REAL", "DOUBLE PRECISION"): "float",
    ("INTEGER", "BOOLEAN"): "boolean",
    ("TEXT", "TIMESTAMP WITH TIME ZONE"): "time",
    ("TEXT", "JSONB"): "json",
    ("BLOB", "BYTEA"): "bytes",
}

Brought = dict[tuple[str, str], str]
"""Table and column, and the revision that brought it."""


def page() -> str:
    """Return the table of types, the list of tables, and a section for each."""
    brought = _brought()
    tables = sorted(METADATA.tables.values(), key=lambda table: (_since(table, brought), table.name))
    contents = [f"- [`{table.name}`](#{table.name}): {_holds(table)}" for table in tables]
    types = markdown_table(("type", "SQLite", "Postgres"), ((name, *types) for types, name in _TYPES.items()))
    head = ["## Types", "", *types, "", "## Tables", "", *contents]
    parts = ["\n".join(head) + "\n", *("\n".join(_section(table, brought)) + "\n" for table in tables)]
    return "\n".join(parts)


def _brought() -> Brought:
    found: Brought = {}
    with TemporaryDirectory() as folder:
        backend = open_backend(Path(folder, "schema.db"), Options())
        try:
            for revision in history():
                migrate(backend, revision.revision)
                for key in _columns_of(backend):
                    found.setdefault(key, revision.revision[:4])
        finally:
            backend.close()
    return found


def _columns_of(backend: Backend) -> Iterator[tuple[str, str]]:
    for table in METADATA.tables:
        for row in backend.peek(f"SELECT name FROM pragma_table_info('{table}')") or ():
            yield table, str(row[0])


def _since(table: sa.Table, brought: Brought) -> str:
    return min(brought[table.name, column.name] for column in table.columns)


def _holds(table: sa.Table) -> str:
    return (table.comment or "").removeprefix(COMMENT_PREFIX)


def _section(table: sa.Table, brought: Brought) -> Iterator[str]:
    first = _since(table, brought)
    yield f"## {table.name}"
    yield ""
    yield f"{_holds(table).capitalize()}. Since {first}."
    yield from _kept(facts_of(table))
    yield ""
    yield from markdown_table(("column", "type", "default", "limit"), _column_rows(table))
    yield ""
    yield f"Primary key: {_names(table.primary_key.columns)}."
    if personal := [column for column in table.columns if is_personal(column)]:
        yield f"Personal: {_names(personal)}."
    for revision, columns in _later(table, first, brought):
        yield f"Since {revision}: {_names(columns)}."
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        yield f"Foreign key: `{key.parent.name}` to `{key.target_fullname}`."
    if table.indexes:
        yield ""
        yield from markdown_table(("index", "columns", "where", "unique", "only on"), _index_rows(table))
    yield from _triggers(table)


def _triggers(table: sa.Table) -> Iterator[str]:
    guards = {guard.name: guard for guard in GUARDS if guard.table == table.name}
    if groups := list(_guard_groups(table, guards)):
        yield ""
        yield f"Guards: {'; '.join(groups)}."
    if guards:
        yield ""
        yield from markdown_table(("guard", "on", "says", "permit", "only on"), _guard_rows(guards.values()))
    for reaction in REACTIONS:
        if reaction.table == table.name:
            yield ""
            yield from markdown_table(("trigger", "after", "does"), _reaction_rows(reaction))
    for derived in DERIVED_ROWS:
        if derived.table == table.name:
            yield ""
            yield from markdown_table(("trigger", "after", "does"), _derived_row_triggers(derived))


#: What `erase` does with the rows of a person.
_ERASED = {
    "emptied": "Where a row is a person's, `erase` empties its personal columns.",
    "removed": "`erase` removes the rows of a person.",
    "with_run": "Personal data goes with its run, when the run is pruned.",
}


def _kept(facts: TableFacts) -> Iterator[str]:
    if facts.pruned_as:
        yield f"Rows are removed by the prune of {' or '.join(f'`{kind}`' for kind in facts.pruned_as)}."
    else:
        yield f"No prune removes rows: {facts.kept}."
    if facts.erased is not None:
        yield _ERASED[facts.erased]
    elif facts.stays:
        yield f"`erase` leaves its personal data: {facts.stays}."


def _later(table: sa.Table, first: str, brought: Brought) -> Iterator[tuple[str, list[sa.Column[Any]]]]:
    """Yield each revision after the table's first, with the columns that it brought."""
    by_revision: dict[str, list[sa.Column[Any]]] = {}
    for column in table.columns:
        by_revision.setdefault(brought[table.name, column.name], []).append(column)
    yield from ((revision, columns) for revision, columns in sorted(by_revision.items()) if revision != first)


def _column_rows(table: sa.Table) -> Iterator[tuple[str, ...]]:
    for column in table.columns:
        types = column.type.compile(_SQLITE), column.type.compile(_POSTGRES).removesuffix(' COLLATE "C"')
        null = " null" if column.nullable else ""
        yield f"`{column.name}`", _TYPES[types] + null, _default(column), _limit(column)


def _default(column: sa.Column[Any]) -> str:
    if column.identity is not None:
        return "made by the database"
    given: Any = getattr(column.server_default, "arg", None)
    if given is None:
        return ""
    text = f"'{given}'" if isinstance(given, str) else str(given.compile(dialect=_POSTGRES))
    return f"`{text}`"


def _limit(column: sa.Column[Any]) -> str:
    if "words" in column.info:
        return " ".join(f"`{word}`" for word in sorted(column.info["words"]))
    most = column.info.get("most")
    if isinstance(most, Setting):
        return f"`limits.{most.name}`, {_size(getattr(Limits(), most.name))}"
    levels = f", {column.info['depth']} levels" if "depth" in column.info else ""
    return "" if most is None else f"{_size(most)}{levels}"


def _size(most: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if most % unit == 0:
            return f"{most // unit} {name}"
    return f"{most} B"


def _index_rows(table: sa.Table) -> Iterator[tuple[str, ...]]:
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        predicates = [index.dialect_options[name]["where"] for name in ("sqlite", "postgresql")]
        where = " / ".join(f"`{text}`" for text, _ in groupby(str(each) for each in predicates if each is not None))
        parts: Iterable[Any] = index.expressions
        shown = (str(part.compile(dialect=_SQLITE)).replace(f"{table.name}.", "") for part in parts)
        listed = ", ".join(f"`{part}`" for part in shown)
        yield f"`{index.name}`", listed, where, "yes" if index.unique else "", str(index.info.get(ONLY, ""))


def _guard_groups(table: sa.Table, guards: dict[str, Guard]) -> Iterator[str]:
    """Take the guards of the groups out of those of the table, and yield what the page says of each group."""
    name = table.name

    def take(suffix: str, message: str, of: set[str] | None = None) -> Guard | None:
        guard = guards.get(f"{name}_{suffix}")
        if guard is None or guard.message != message or (of is not None and of != {*guard.of}):
            return None
        return guards.pop(guard.name)

    append_only = f"{name} is append-only"
    if deletion := take("no_delete", append_only):
        take("no_truncate", append_only)
        yield f"append-only (permit `{deletion.permit}`)"
    if update := take("no_update", f"rows of {name} never change"):
        yield "never changed" + (f" (permit `{update.permit}`)" if update.permit else "")
    replaced = f"rows of {name} are never replaced"
    if take("no_replace", replaced):
        keys = take("keys_stay", replaced)
        named = _names(each for each in keys.of if each not in ROWID) or "`rowid` alone" if keys else ""
        yield "never replaced" + (f" ({named})" if named else "")
    times = {column.name for column in table.columns if column.type is Timestamp}
    spelled = f"times of {name} are spelled like 2026-02-03T12:34:56.789Z"
    if take("times_new", spelled):
        take("times_set", spelled, times)
        yield "times"


def _guard_rows(guards: Iterable[Guard]) -> Iterator[tuple[str, ...]]:
    for guard in guards:
        on = f"{guard.event}{f' of {_names(guard.of)}' if guard.of else ''}"
        only = "postgresql" if guard.event == "truncate" else guard.only  # SQLite has no such statement
        yield f"`{guard.name}`", on, guard.message, guard.permit or "", only or ""


def _reaction_rows(reaction: Reaction) -> Iterator[tuple[str, ...]]:
    names = ", ".join(f"`{reaction.name}_{event}`" for event in EVENTS)
    yield names, ", ".join(EVENTS), reaction.says


def _derived_row_triggers(derived: DerivedRow) -> Iterator[tuple[str, ...]]:
    for name, event, *_ in derived.triggers():
        head, of, columns = event.partition(" OF ")
        yield f"`{name}`", head.lower() + (f" of {_names(columns.split(', '))}" if of else ""), derived.says


def _names(parts: Iterable[Any]) -> str:
    return ", ".join(f"`{getattr(part, 'name', part)}`" for part in parts)


def markdown_table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
