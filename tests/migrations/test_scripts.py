from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy.sql import operators
from support.each import with_each
from support.migrations.golden import files
from support.migrations.support import Place

from lastlight_state.db.schema.columns import JSON_TYPES
from lastlight_state.db.schema.declarations import COMMENT_PREFIX
from lastlight_state.migrations import history, scripts
from lastlight_state.migrations.apply import config
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.runner import target_of

ROOT = Path(__file__).parents[2]
LARGE = {"output_text", "error", "policy", "body", "content", "embedding"}


def test_file_names_tell_the_revisions() -> None:
    """migrations MG-20: the head is known without loading a revision."""
    assert scripts.revisions() == tuple(revision.revision for revision in history())
    assert scripts.head() == history()[-1].revision


def test_the_history_says_what_alembic_reads() -> None:
    """migrations MG-61: the files are read, not run; running them gives the same."""
    directory = ScriptDirectory.from_config(config())
    run = [(script.revision, script.down_revision, script.doc) for script in directory.walk_revisions()]
    assert [(known.revision, known.down_revision, known.summary) for known in history()] == run[::-1]


def test_revisions_are_one_line_of_numbers_with_names() -> None:
    """migrations MG-3: the first has a number alone, and no other has a name that a development version gave."""
    known = history()
    assert [revision.down_revision for revision in known] == [None, *(revision.revision for revision in known[:-1])]
    assert [revision.revision[:4] for revision in known] == [f"{number:04}" for number in range(1, len(known) + 1)]
    assert all(re.fullmatch(r"0001|\d{4}(_[a-z0-9]+)+", revision.revision) for revision in known)
    assert all(len(revision.revision) <= 32 for revision in known)  # so long is the column of Alembic's table
    assert [known for known in scripts.revisions() if scripts.was_never_released(known)] == []


def test_a_revision_is_meant_by_its_number_too() -> None:
    """migrations MG-61."""
    assert [target_of(known[:4]) for known in scripts.revisions()] == list(scripts.revisions())
    assert [target_of(known) for known in scripts.revisions()] == list(scripts.revisions())


def test_a_checkout_uses_its_own_scripts() -> None:
    """migrations MG-1: an editable install has no copy."""
    assert scripts.folder() == ROOT / "alembic"


def test_an_installed_wheel_uses_the_scripts_that_it_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """migrations MG-1."""
    inside = tmp_path / "_migrations"
    (inside / "versions").mkdir(parents=True)
    (inside / "env.py").touch()
    monkeypatch.setattr(scripts, "_PACKAGE", tmp_path)
    scripts.folder.cache_clear()
    try:
        assert scripts.folder() == inside
    finally:
        scripts.folder.cache_clear()


def test_an_installation_without_scripts_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package/_migrations/versions").mkdir(parents=True)
    (tmp_path / "alembic").mkdir()
    (tmp_path / "alembic/env.py").touch()  # of both places the half
    monkeypatch.setattr(scripts, "_PACKAGE", tmp_path / "package")
    scripts.folder.cache_clear()
    try:
        with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "alembic"))):
            scripts.folder()
    finally:
        scripts.folder.cache_clear()


def test_every_table_on_postgres_says_whose_it_is(postgres_place: Place) -> None:
    """migrations MG-5."""
    postgres_place.at()
    comments = postgres_place.raw().execute(
        "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        " AND relname <> 'lastlight_state_version'"
    )
    found = dict(comments.fetchall())
    assert found.keys() == METADATA.tables.keys()
    assert all(comment and comment.startswith(COMMENT_PREFIX) for comment in found.values())


def test_names_of_indexes_fit_postgres() -> None:
    """Postgres cuts longer names silently, and a cut name is another name."""
    names = [str(index.name) for table in METADATA.tables.values() for index in table.indexes]
    assert all(len(name.encode()) <= 63 for name in names)


@with_each("table", sorted(METADATA.tables))
def test_large_columns_come_last_among_those_that_one_revision_brought(table: str) -> None:
    """house H-35: on SQLite what lies behind a large column is slow to read. The seed's own order is fixed.

    A narrow column that a later revision adds is no fault: lists show it from a companion (docs/contributing.md).
    """
    wrong = [names for names in brought(table)[1:] if not re.fullmatch("n*L*", kinds(table, names))]
    assert not wrong


def test_a_narrow_column_of_a_later_revision_may_stand_behind_large_ones() -> None:
    """house H-65: and one of the same revision may not."""
    assert re.fullmatch("n*L*", kinds("run_events", ["run_id", "type", "payload"]))
    assert re.fullmatch("n*L*", kinds("run_events", ["occurred_at"]))
    assert not re.fullmatch("n*L*", kinds("run_events", ["payload", "occurred_at"]))


@cache
def columns_by_revision() -> list[dict[str, list[str]]]:
    """The columns of each table in their order, at each revision."""
    found = []
    for file in (file for file in files() if file.parent.name == "sqlite"):
        connection = sqlite3.connect(":memory:")
        connection.executescript(file.read_text())
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found.append({name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables})
        connection.close()
    return found


def brought(table: str) -> list[list[str]]:
    """The columns that each revision brought, the first revision's at the beginning."""
    known: set[str] = set()
    found = []
    for at in columns_by_revision():
        found.append([name for name in at.get(table, []) if name not in known])
        known |= set(at.get(table, []))
    assert known == set(METADATA.tables[table].columns.keys())
    return found


def kinds(table: str, names: Iterable[str]) -> str:
    """A letter for each column: L if it may be large, n if it is narrow."""
    return "".join("L" if is_large(METADATA.tables[table].columns[name]) else "n" for name in names)


def is_large(column: object) -> bool:
    kind = getattr(column, "type", None)
    return isinstance(kind, JSON_TYPES) or getattr(column, "name", "") in LARGE


@with_each("table", sorted(METADATA.tables))
def test_indexes_take_new_rows_at_their_end(table: str) -> None:
    """house H-66: at its beginning an index splits pages and leaves them half full; it is read in both directions.

    Two of the seed's descend, and stay as they are.
    """
    descending = [
        index.name
        for index in METADATA.tables[table].indexes
        if any(getattr(column, "modifier", None) is operators.desc_op for column in index.expressions)
    ]
    assert not set(descending) - {"idx_workflow_runs_started_at", "idx_workflow_runs_name_started"}
