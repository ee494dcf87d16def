"""Golden databases: populated dumps of each revision on each product, kept under ``tests/fixtures/golden``.

``make record`` writes those of revisions that are not released yet, and those that are missing, and removes those of
revisions that there are no more; a released one is never written again. A dump is a script: the schema as that
revision's own upgrade makes it, and rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.migrations.releases import HISTORY, released
from support.migrations.story import STORY, UNTIL, Row

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.migrations import drift, migrate, script, scripts
from lastlight_state.migrations.adoption.fit import blueprints
from lastlight_state.testing import ThrowawayPostgres

FOLDER = Path(__file__).parents[2] / "fixtures" / "golden"
PRODUCTS = ("sqlite", "postgresql")


def files() -> list[Path]:
    """Return all golden databases that there are."""
    return sorted(FOLDER.glob("*/*.sql"))


def schema_of(dump: str) -> str:
    """Return the part of a dump before its rows."""
    return dump.partition("-- Rows\n")[0]


def dump(backend: Backend, revision: str) -> str:
    """Return the dump of a database at the revision, for the product and place of an empty ``backend``."""
    schema = script(backend, revision) or ""
    body, _, end = schema.rpartition("COMMIT;")
    rows = "\n".join(statements(columns_at(revision), revision, backend.name))
    return f"-- A database at revision {revision}.\n\n{body}-- Rows\n\n{rows}\n\nCOMMIT;{end}"


def columns_at(revision: str) -> dict[str, set[str]]:
    """Return the columns of each table at the revision, the same on every product."""
    backend = open_backend(":memory:", Options())
    migrate(backend, revision)
    found: dict[str, set[str]] = {}
    with backend.migration(1) as connection:
        for kind, table, name in backend.shape(connection):
            if kind == "column":
                found.setdefault(table, set()).add(name)
    backend.close()
    return found


def statements(columns: dict[str, set[str]], revision: str, product: str) -> Iterator[str]:
    """Yield the rows of the story, as far as there are tables and columns for them."""
    for table, rows in STORY.items():
        for row in rows if table in columns else ():
            if row.get(UNTIL, "9999") > revision:
                yield _insert(table, {name: row[name] for name in row if name in columns[table]}, product)


def _insert(table: str, row: Row, product: str) -> str:
    values = ", ".join(_literal(value, product) for value in row.values())
    names = ", ".join(f'"{name}"' if name == "user" else name for name in row)
    return f"INSERT INTO {table} ({names}) VALUES ({values});"


def _literal(value: Any, product: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower() if product == "postgresql" else str(int(value))
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'" if product == "postgresql" else f"x'{value.hex()}'"
    if isinstance(value, int | float):
        return repr(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "'" + text.replace("'", "''") + "'"


def write(backend: Backend) -> None:
    """Write the dumps of one product."""
    folder = FOLDER / backend.name
    folder.mkdir(parents=True, exist_ok=True)
    frozen = released(HISTORY.read_text("utf-8"))
    for revision in scripts.revisions():
        file = folder / f"{revision}.sql"
        if not (file.exists() and revision in frozen):
            file.write_text(dump(backend, revision), "utf-8")
    for file in folder.glob("*.sql"):
        if file.stem not in {*scripts.revisions(), *frozen}:
            file.unlink()
    write_shape(backend)


def write_shape(backend: Backend) -> None:
    """Write what the newest revision makes on one product, by which `lastlight_state.migrations.drift` compares."""
    file = scripts.folder() / "shapes" / f"{backend.name}.txt"
    file.parent.mkdir(exist_ok=True)
    shapes = blueprints(backend, *scripts.revisions())
    file.write_text("\n".join([*drift.lines_of(backend, shapes), ""]), "utf-8")


def main() -> None:
    memory = open_backend(":memory:", Options())
    write(memory)
    memory.close()
    with ThrowawayPostgres.start() as server, server.database() as url:
        backend = open_backend(url, Options())
        write(backend)
        backend.close()


if __name__ == "__main__":
    main()
