"""Writes ``docs/schema.md``, the reference of all tables, from the declared models: ``make docs``.

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
from lastlight_state.db.schema.declarations import COMMENT_PREFIX, KIB, MIB, Setting, TableFacts, facts_of, is_personal
from lastlight_state.db.schema.guards import EVENTS, DerivedRow, Guard, Reaction
from lastlight_state.db.schema.indexes import ONLY
from lastlight_state.migrations import history, migrate
from lastlight_state.migrations.metadata import DERIVED_ROWS, GUARDS, METADATA, REACTIONS
from lastlight_state.settings import Limits

PAGE = Path(__file__).with_name("schema.md")

_SQLITE: Any = sqlite.dialect()
_POSTGRES: Any = postgresql.dialect()  # type: ignore[no-untyped-call]

_HEAD = """\
# Schema

Generated from the declared models by `make docs`; a test compares the two.
Raw SQL may read all of this.
[Promises](promises.md) says what stays as it is, and the [history](schema-history.md) what each revision brought.

Types are given for SQLite and Postgres.
Text is `COLLATE "C"` on Postgres, so that both databases sort alike.
Times are 24-character text (`2026-02-03T12:34:56.789Z`) on SQLite.
A *guard* is a trigger that refuses a statement, whoever sends it, and says why.
One with a *permit* lets the statement through while `maintenance_permits` holds a row of that kind.
A *trigger* that refuses nothing changes other rows, in the transaction of whoever wrote.
A column is *personal* if it can hold what a person said, what was said of a person, or a person's name.
The *limit* of a text or JSON is the most bytes of UTF-8 that a call stores there: fixed, or a setting with its default.
Where it is empty, the library makes the value; a column of words lists those that this version knows.
Nothing in the database enforces a limit, so other programs may have stored more; that stays readable.
"""

Brought = dict[tuple[str, str], str]
"""Table and column, and the revision that brought it."""


def page() -> str:
    """The whole page."""
    brought = _brought()
    tables = sorted(METADATA.tables.values(), key=lambda table: (_since(table, brought), table.name))
    contents = [f"- [`{table.name}`](#{table.name}): {_holds(table)}" for table in tables]
    parts = [_HEAD, "\n".join(contents) + "\n", *("\n".join(_section(table, brought)) + "\n" for table in tables)]
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
    yield f"{_holds(table).capitalize()}."
    yield f"Since {first}."
    yield from _kept(facts_of(table))
    yield ""
    yield from _table(
        ("column", "SQLite", "Postgres", "null", "default", "personal", "limit", "since"),
        _column_rows(table, first, brought),
    )
    yield ""
    yield f"Primary key: {_names(table.primary_key.columns)}."
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        yield f"Foreign key: `{key.parent.name}` to `{key.target_fullname}`."
    if table.indexes:
        yield ""
        yield from _table(("index", "columns", "where", "unique", "only on"), _index_rows(table))
    guards = [guard for guard in GUARDS if guard.table == table.name]
    if guards:
        yield ""
        yield from _table(("guard", "on", "says", "permit", "only on"), _guard_rows(guards))
    for reaction in REACTIONS:
        if reaction.table == table.name:
            yield ""
            yield from _table(("trigger", "after", "does"), _reaction_rows(reaction))
    for derived in DERIVED_ROWS:
        if derived.table == table.name:
            yield ""
            yield from _table(("trigger", "after", "does"), _derived_row_triggers(derived))


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


def _column_rows(table: sa.Table, first: str, brought: Brought) -> Iterator[tuple[str, ...]]:
    for column in table.columns:
        since = brought[table.name, column.name]
        yield (
            f"`{column.name}`",
            column.type.compile(_SQLITE),
            column.type.compile(_POSTGRES).removesuffix(' COLLATE "C"'),
            "yes" if column.nullable else "",
            _default(column),
            "yes" if is_personal(column) else "",
            _limit(column),
            "" if since == first else since,
        )


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


def _guard_rows(guards: Iterable[Guard]) -> Iterator[tuple[str, ...]]:
    for guard in guards:
        on = f"{guard.event}{f' of {_names(guard.of)}' if guard.of else ''}"
        only = "postgresql" if guard.event == "truncate" else guard.only  # SQLite has no such statement
        yield f"`{guard.name}`", on, guard.message, guard.permit or "", only or ""


def _reaction_rows(reaction: Reaction) -> Iterator[tuple[str, ...]]:
    for event in EVENTS:
        yield f"`{reaction.name}_{event}`", event, reaction.says


def _derived_row_triggers(derived: DerivedRow) -> Iterator[tuple[str, ...]]:
    for name, event, *_ in derived.triggers():
        head, of, columns = event.partition(" OF ")
        yield f"`{name}`", head.lower() + (f" of {_names(columns.split(', '))}" if of else ""), derived.says


def _names(parts: Iterable[Any]) -> str:
    return ", ".join(f"`{getattr(part, 'name', part)}`" for part in parts)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
