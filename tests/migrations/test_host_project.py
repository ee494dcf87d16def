"""A host project with Alembic of its own: only ``upgrade`` touches our tables."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from alembic.config import CommandLine, Config
from alembic.util import CommandError
from sqlalchemy import NullPool, create_engine, inspect
from support.docs.pages import ROOT, blocks
from support.migrations.support import Place, tables

from lastlight_state.errors import InvalidValue
from lastlight_state.migrations import current, read_state, scripts

[RECIPE] = [block.text for block in blocks(ROOT / "docs" / "deploying.md", "py")]
HEAD = scripts.head()

#: A host whose ``env.py`` is Alembic's own template, in which every revision commits by itself on SQLite.
TEMPLATE = """
from alembic import context
from sqlalchemy import MetaData, NullPool, create_engine
from lastlight_state import migrations

url = context.config.get_main_option("sqlalchemy.url")
with create_engine(url, poolclass=NullPool).connect() as connection:
    context.configure(connection=connection, target_metadata=MetaData(), include_object=migrations.include_object)
    with context.begin_transaction():
        migrations.upgrade_from_env()
        context.run_migrations()
"""
REVISION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = {revision!r}, {before!r}
def upgrade():
    op.create_table({table!r}, sa.Column("id", sa.Text(), primary_key=True))
def downgrade():
    op.drop_table({table!r})
"""
MAKO = """
revision, down_revision = "${up_revision}", ${repr(down_revision)}
def upgrade():
    ${upgrades or "pass"}
def downgrade():
    pass
"""
#: A host's table that refers to one of ours.
REFERS = """
import sqlalchemy as sa
from lastlight_state.models import WorkflowRunModel

metadata = sa.MetaData()
sa.Table(
    "shipments",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.ForeignKey(WorkflowRunModel.id, ondelete="CASCADE"), index=True),
)
"""
#: Every command that looks, or changes only what is the host's; the last two words of some are arguments.
OTHERS = (
    "current", "history", "heads", "branches", "show head", "stamp head", "current --verbose", "stamp base",
    "ensure_version", "revision -m empty", "upgrade head --sql", "downgrade head:base --sql",
)  # fmt: skip

Host = Callable[..., str]


@pytest.fixture
def host_on(tmp_path: Path) -> Callable[[Place], Host]:
    """Makes a host with two revisions: a function that runs an Alembic command of it and gives what it prints."""
    return lambda place: _host(place, tmp_path)


@pytest.fixture
def host(place: Place, host_on: Callable[[Place], Host]) -> Host:
    """Such a host on either database."""
    return host_on(place)


def _host(place: Place, tmp_path: Path) -> Host:
    tree = tmp_path / "theirs"
    (tree / "versions").mkdir(parents=True)
    (tree / "env.py").write_text(RECIPE)
    (tree / "script.py.mako").write_text(MAKO)
    for revision, before, table in (("a1", None, "orders"), ("a2", "a1", "bills")):
        text = REVISION.format(revision=revision, before=before, table=table)
        (tree / "versions" / f"{revision}.py").write_text(text)

    def run(words: str, env: str = RECIPE) -> str:
        (tree / "env.py").write_text(env)
        url = place.url.replace("%", "%%")
        ini = tmp_path / "alembic.ini"
        ini.write_text(f"[alembic]\nscript_location = {tree}\npath_separator = os\nsqlalchemy.url = {url}\n")
        said = io.StringIO()
        command = CommandLine("alembic")
        options = command.parser.parse_args(["-c", str(ini), *words.split()])
        options.raiseerr = True
        config = Config(str(ini), cmd_opts=options, stdout=said, output_buffer=said)
        command.run_cmd(config, options)
        made = [file.read_text() for file in sorted((tree / "versions").glob("*_more.py"))]
        return "".join([said.getvalue(), *made])

    return run


def ours(place: Place) -> set[str]:
    """The tables of ours that the database has."""
    return tables(place.backend()) & {"workflow_runs", "executions", "lastlight_state_version"}


def test_commands_that_do_not_upgrade_leave_our_tables_out(place: Place, host: Host) -> None:
    """migrations MG-53: on an empty database, also those that write a script or the host's version."""
    for words in OTHERS:
        host(words)
        assert ours(place) == set(), words


@pytest.mark.slow
def test_an_upgrade_brings_our_tables_and_every_other_command_leaves_them(place: Place, host: Host) -> None:
    """migrations MG-53: and autogenerate, ``check`` and ``downgrade`` know that they are not the host's.

    Nothing warns of them, which here would be an error.
    """
    host("upgrade a1")
    assert (current(place.backend()), tables(place.backend()) >= {"orders"}) == (HEAD, True)
    for words in ("current", "upgrade head", "downgrade -1", "upgrade +1", "downgrade base", "upgrade a2", "stamp a2"):
        host(words)
        assert current(place.backend()) == HEAD, words
    proposed = host("revision --autogenerate -m more")
    dropped = sorted(re.findall(r"op\.drop_table\('(\w+)'\)", proposed))
    assert dropped == ["bills", "orders"]  # which no metadata declares


@pytest.mark.slow
def test_autogenerate_makes_a_table_that_refers_to_ours(place: Place, host: Host, tmp_path: Path) -> None:
    """migrations MG-105: it is made by the host's revision, and afterwards nothing is left to do."""
    env = RECIPE.replace("metadata = MetaData()  # your own tables", REFERS)
    (tmp_path / "theirs" / "script.py.mako").write_text("import sqlalchemy as sa\nfrom alembic import op\n" + MAKO)
    host("upgrade head", env)
    proposed = host("revision --autogenerate -m more", env)
    host("upgrade head", env)
    host("check", env)
    assert re.findall(r"op\.create_table\('(\w+)'", proposed) == ["shipments"]
    [key] = inspect(create_engine(place.url, poolclass=NullPool)).get_foreign_keys("shipments")
    assert (key["referred_table"], key["options"]["ondelete"]) == ("workflow_runs", "CASCADE")
    assert current(place.backend()) == HEAD


@pytest.mark.plain_postgres("runs a script as one text")
def test_a_script_holds_our_statements_and_makes_what_the_upgrade_makes(place: Place, host: Host) -> None:
    """migrations MG-54: as it stands, on an empty database."""
    written = host("upgrade head --sql")
    raw = place.raw()
    (raw.executescript if place.name == "sqlite" else raw.execute)(written)
    assert current(place.backend()) == HEAD
    assert {"orders", "bills"} <= tables(place.backend())
    host("upgrade head")


def test_a_script_of_ours_is_a_transaction_also_where_the_hosts_is_not(place: Place, host: Host) -> None:
    """migrations MG-54: with a transaction for each revision; on SQLite Alembic writes none at all."""
    place.raw().execute("CREATE TABLE vectors (id TEXT)")  # the script comes to it late
    env = RECIPE.replace("literal_binds=True", "literal_binds=True, transaction_per_migration=True")
    assert env != RECIPE
    written = host("upgrade head --sql", env)
    raw = place.raw()
    with pytest.raises((sqlite3.Error, psycopg.Error), match="already exists"):
        (raw.executescript if place.name == "sqlite" else raw.execute)(written)
    place.close()
    assert ours(place) == set()


def test_commands_of_a_host_on_a_damaged_schema_leave_it_and_an_upgrade_puts_it_back(place: Place, host: Host) -> None:
    """migrations MG-53, MG-73."""
    host("upgrade head")
    place.raw().execute("DROP INDEX uq_scores_current")
    for words in (*OTHERS, "check"):
        with suppress(CommandError):  # the host's own metadata declares none of its tables
            host(words)
        assert read_state(place.backend()).lacking == ("index scores.uq_scores_current is missing",), words
    host("stamp head")  # a stamp of the host's base was among them
    host("upgrade head")
    assert read_state(place.backend()).absent == ()


def test_a_script_begins_where_it_is_told(place: Place, host: Host) -> None:
    """migrations MG-54: ``-x lastlight_state=`` names the revision that our tables are at."""
    newest = host(f"-x lastlight_state={HEAD} upgrade head --sql")
    assert "workflow_runs" not in newest
    assert "CREATE TABLE orders" in newest
    before = host("-x lastlight_state=0001 upgrade head --sql")
    assert "CREATE TABLE run_transitions" in before
    assert "CREATE TABLE workflow_runs" not in before
    assert ours(place) == set()


def test_it_works_in_an_env_that_commits_each_revision(place: Place, host: Host) -> None:
    """migrations MG-53: Alembic's own template begins no transaction on SQLite."""
    host("current", TEMPLATE)
    assert ours(place) == set()
    host("upgrade head", TEMPLATE)
    assert current(place.backend()) == HEAD
    assert {"orders", "bills"} <= tables(place.backend())


@pytest.mark.plain_postgres("runs a script as one text")
def test_a_schema_of_their_own_holds_our_tables(postgres_place: Place, host_on: Callable[[Place], Host]) -> None:
    """migrations MG-29, MG-53, Postgres: made by the upgrade and by the script, and the host's path is as before."""
    host = host_on(postgres_place)
    env = RECIPE.replace("upgrade_from_env()", "upgrade_from_env(schema='Odd name')")
    written = host("upgrade head --sql", env)
    postgres_place.raw().execute(written)
    assert current(postgres_place.backend(schema="Odd name")) == HEAD
    assert tables(postgres_place.backend()) == {"orders", "bills", "alembic_version"}
    postgres_place.raw().execute('DROP SCHEMA "Odd name" CASCADE; DROP TABLE orders, bills, alembic_version')
    host("upgrade head", env)
    assert current(postgres_place.backend(schema="Odd name")) == HEAD
    assert tables(postgres_place.backend()) == {"orders", "bills", "alembic_version"}


def test_a_schema_is_refused_where_there_are_none(sqlite_place: Place, host_on: Callable[[Place], Host]) -> None:
    """migrations MG-53, SQLite."""
    env = RECIPE.replace("upgrade_from_env()", "upgrade_from_env(schema='agents')")
    with pytest.raises(InvalidValue, match="only Postgres has schemas"):
        host_on(sqlite_place)("upgrade head", env)
