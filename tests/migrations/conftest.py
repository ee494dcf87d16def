from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from support.migrations.support import Place
from support.migrations.templates import PostgresTemplates, SqliteTemplates
from support.migrations.workers import Workers

from lastlight_state.migrations import scripts
from lastlight_state.testing.postgres import ThrowawayPostgres


@pytest.fixture(scope="session")
def sqlite_templates(tmp_path_factory: pytest.TempPathFactory) -> SqliteTemplates:
    """Files at each revision."""
    return SqliteTemplates(tmp_path_factory.mktemp("templates"))


@pytest.fixture(scope="session")
def postgres_templates(postgres_server: ThrowawayPostgres) -> Iterator[PostgresTemplates]:
    """Postgres databases at each revision."""
    made = PostgresTemplates(postgres_server)
    yield made
    made.drop()


@pytest.fixture
def sqlite_place(tmp_path: Path, sqlite_templates: SqliteTemplates) -> Iterator[Place]:
    """A SQLite file that does not exist yet."""
    folders = (tmp_path if number == 0 else tmp_path / f"place-{number}" for number in count())

    def make(revision: str | None) -> str:
        folder = next(folders)
        folder.mkdir(exist_ok=True)
        return sqlite_templates.copy(revision, folder / "state.db")

    place = Place("sqlite", make)
    yield place
    place.close()


@pytest.fixture
def postgres_place(postgres_templates: PostgresTemplates) -> Iterator[Place]:
    """An empty Postgres database."""
    place = Place("postgresql", postgres_templates.take, postgres_templates.give_back)
    yield place
    place.start_over()


@pytest.fixture(params=("sqlite", "postgresql"))
def place(request: pytest.FixtureRequest) -> Place:
    """An empty place of each kind: a file that does not exist yet, and a Postgres database without a table."""
    made: Place = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "postgres_place")
    return made


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """Processes that migrate (a second, once)."""
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def with_bad_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts with one more revision, which fails half-way."""
    fails = "op.create_table('half', sa.Column('id', sa.Text()))", "op.execute('INSERT INTO nowhere VALUES (1)')"
    with one_more_revision(tmp_path, monkeypatch, *fails):
        yield


@pytest.fixture
def with_next_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts with one more revision, which does what revisions do."""
    adds = (
        "op.create_table('run_notes', sa.Column('id', sa.Text(), primary_key=True))",
        "op.add_column('workflow_runs', sa.Column('mood', sa.Text()))",
        "op.add_column('executions', sa.Column('rank', sa.Integer(), server_default=sa.text('0'), nullable=False))",
        "op.create_index('ix_workflow_runs_mood', 'workflow_runs', ['mood'])",
    )
    with one_more_revision(tmp_path, monkeypatch, *adds):
        yield


@contextmanager
def one_more_revision(folder: Path, monkeypatch: pytest.MonkeyPatch, *operations: str) -> Iterator[None]:
    """A copy of the scripts with a revision 9999 that does this, used instead of the checkout's."""
    newest = scripts.head()
    copy = folder / "package" / "_migrations"
    shutil.copytree(scripts.folder(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    lines = [
        '"""One more."""',
        "import sqlalchemy as sa",
        "from alembic import op",
        f"revision, down_revision, branch_labels, depends_on = '9999', '{newest}', None, None",
        "def upgrade():",
        *(f"    {operation}" for operation in operations),
    ]
    (copy / "versions" / "9999.py").write_text("\n".join(lines))
    monkeypatch.setattr(scripts, "_PACKAGE", copy.parent)
    scripts.folder.cache_clear()
    scripts.revisions.cache_clear()
    yield
    scripts.folder.cache_clear()
    scripts.revisions.cache_clear()
