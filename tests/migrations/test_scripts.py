from __future__ import annotations

import re
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from support.migrations.support import Place

from lastlight_state.db.columns import JSON_TYPES
from lastlight_state.db.declarations import COMMENT_PREFIX
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
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'lastlight_state_version'"
    )
    found = dict(comments.fetchall())
    assert found.keys() == METADATA.tables.keys()
    assert all(comment and comment.startswith(COMMENT_PREFIX) for comment in found.values())


def test_names_of_indexes_fit_postgres() -> None:
    """Postgres cuts longer names silently, and a cut name is another name."""
    names = [str(index.name) for table in METADATA.tables.values() for index in table.indexes]
    assert all(len(name.encode()) <= 63 for name in names)


@pytest.mark.parametrize("table", sorted(METADATA.tables))
def test_large_columns_come_last_among_those_that_one_revision_brought(table: str) -> None:
    """house H-35: on SQLite what lies behind a large column is slow to read. The seed's own order is fixed."""
    ours = {"workflow_runs": 15, "executions": 22, "workflow_approvals": 11, "messaging_sessions": 10}
    kinds = ["L" if is_large(column) else "n" for column in list(METADATA.tables[table].columns)[ours.get(table, 0) :]]
    assert re.fullmatch("n*L*", "".join(kinds)) or table == "messaging_messages"


def is_large(column: object) -> bool:
    kind = getattr(column, "type", None)
    return isinstance(kind, JSON_TYPES) or getattr(column, "name", "") in LARGE
