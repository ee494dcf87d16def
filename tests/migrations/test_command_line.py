"""The commands about the schema, as a pipeline calls them."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url
from support.cli.calls import Said, lastlight_state
from support.each import with_each
from support.migrations.nobody import as_nobody
from support.migrations.originals import SEED, STRICT, original, session
from support.migrations.support import Place, tables

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.migrations import current, scripts
from lastlight_state.testing.postgres import ThrowawayPostgres, connect

pytestmark = pytest.mark.recorded

ALL = list(scripts.revisions())

PASSWORD = "a!b@c$d%e*_,/:;=?@[]"
SPELLINGS = {PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), quote_plus(PASSWORD)}

COMMANDS = {
    "migrate": ("migrate",),
    "dry run": ("migrate", "--dry-run"),
    "script": ("migrate", "--sql"),
    "check": ("check",),
    "current": ("current",),
    "stamp": ("stamp",),
    "grants": ("grants", "--role", "service"),
}


@pytest.fixture(autouse=True)
def _away_from_any_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of whoever runs the tests reaches the program, which works in the test's own folder."""
    for name in list(os.environ):
        if name.startswith("LASTLIGHT_STATE_") or name == "STATE_DIR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def one_line(said: Said) -> str:
    """What was said on stderr, which is one line; nothing was said on stdout."""
    assert (said.out, said.err.count("\n")) == ("", 1), said
    assert said.err.startswith("lastlight-state: ")
    return said.err


# --- what they say ---------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_migrate_then_does(place: Place) -> None:
    """migrations MG-60: ``--dry-run``, ``--to``, ``--json``."""
    place.at("0001")
    planned = lastlight_state("migrate", "--dry-run", "--to", "0002", "--url", place.url, "--json")
    assert (planned.code, current(place.backend())) == (0, "0001")
    assert "nothing to do" not in lastlight_state("migrate", "--dry-run", "--url", place.url).out
    done = lastlight_state("migrate", "--to", "0002", "--url", place.url, "--json")
    for key in ("from", "to", "revisions"):
        assert planned.data[key] == {**done.data, "from": "0001"}[key]
    assert done.data["revisions"] == [ALL[1]]


def test_a_dry_run_of_what_is_done_has_nothing_to_do(place: Place) -> None:
    """migrations MG-60."""
    place.at()
    said = lastlight_state("migrate", "--dry-run", "--url", place.url)
    assert said.code == 0
    assert said.out.endswith("nothing to do\n")


def test_a_dry_run_refuses_a_version_that_is_wrong(place: Place) -> None:
    """migrations MG-60: as the migration does, and names what mends it."""
    place.at()
    place.raw().execute(f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    for words in ((), ("--dry-run",)):
        said = lastlight_state("migrate", *words, "--url", place.url)
        assert (said.code, "stamp" in said.err, f"the schema is that of revision {ALL[-1]}" in said.err) == (
            1,
            True,
            True,
        )


@pytest.mark.plain_postgres("runs a script as one text")
def test_a_script_goes_to_stdout_and_nothing_else_does(place: Place) -> None:
    """migrations MG-62: ``--sql``, executed as it stands."""
    said = lastlight_state("migrate", "--sql", "--url", place.url)
    assert (said.code, said.err) == (0, "")
    raw = place.raw()
    (raw.executescript if place.name == "sqlite" else raw.execute)(said.out)
    assert lastlight_state("check", "--url", place.url).code == 0
    assert lastlight_state("migrate", "--sql", "--url", place.url).out == "-- nothing to do\n"
    data = lastlight_state("migrate", "--sql", "--url", place.url, "--json").data
    assert data == {"state": "current", "from": ALL[-1], "to": ALL[-1], "sql": ""}


@pytest.mark.slow
def test_an_original_is_planned_and_taken_over(sqlite_place: Place) -> None:
    """migrations MG-46: revisions, rows rewritten, lock, and what is odd."""
    original(sqlite_place, STRICT, session("s", at="2026-06-29 20:15:00"))
    checked = lastlight_state("check", "--url", sqlite_place.url)
    assert checked.code == 3
    assert "rebuilds the table without its UNIQUE over the whole key: 1 rows of messaging_sessions" in checked.out
    assert "makes the index idx_msg_sessions_unique_active, which is missing" in checked.out
    assert (
        "writes created_at as times are here, like 2026-02-03T12:34:56.789Z; found '2026-06-29 20:15:00'" in checked.out
    )
    assert "holding: the file's write lock" in checked.out
    assert "a database of the original program; run: lastlight-state migrate --url" in checked.err
    for words in ((), ("--to", "0001")):
        planned = lastlight_state("migrate", "--dry-run", *words, "--url", sqlite_place.url)
        assert (planned.code, "nothing to do" in planned.out) == (0, False)
    assert tables(sqlite_place.backend()) & {"lastlight_state_version"} == set()
    done = lastlight_state("migrate", "--url", sqlite_place.url)
    assert done.out.startswith(f"took over a database of the original program as 0001\napplied {ALL[1]}\n")
    assert done.err.count("messaging_sessions: rewrote 1 values: writes ") == 2
    assert lastlight_state("migrate", "--url", sqlite_place.url).out == f"nothing to do\n{ALL[-1]}  current\n"


@pytest.mark.slow
def test_what_is_not_the_originals_is_refused_with_every_difference(sqlite_place: Place) -> None:
    """migrations MG-43, maintenance OP-72."""
    original(sqlite_place, SEED.replace("cost_usd REAL", "cost_usd TEXT").replace("turns INTEGER", "turns TEXT"))
    listed = [
        "column executions.cost_usd is 'TEXT', expected 'REAL'",
        "column executions.turns is 'TEXT', expected 'INTEGER'",
    ]
    checked = lastlight_state("check", "--url", sqlite_place.url, "--json")
    assert (checked.error, checked.data["differences"]) == ("unversioned", listed)
    for words in (("migrate",), ("migrate", "--dry-run"), ("migrate", "--sql"), ("ls",)):
        said = lastlight_state(*words, "--url", sqlite_place.url, "--quiet")
        assert said.code == 1
        assert all(line in said.err for line in listed)
    assert all(line in lastlight_state("check", "--url", sqlite_place.url).out for line in listed)


@pytest.mark.slow
def test_a_version_that_was_lost_is_stamped(place: Place) -> None:
    """migrations MG-64: ``stamp`` refuses another revision unless it is forced."""
    place.at()
    place.raw().execute("DROP TABLE lastlight_state_version")
    assert lastlight_state("stamp", "--to", "0001", "--url", place.url).code == 1
    assert lastlight_state("stamp", "--url", place.url).out == f"{ALL[-1]}  current  (was: -)\n"
    assert lastlight_state("stamp", "--to", "0001", "--force", "--url", place.url, "--json").data["state"] == "behind"


def test_grants_are_statements_that_the_owner_executes(postgres_place: Place) -> None:
    """migrations MG-65."""
    postgres_place.at()
    role = f"service_{uuid4().hex[:8]}"
    said = lastlight_state("grants", "--role", role, "--url", postgres_place.url)
    assert said.code == 0
    owner = postgres_place.raw()
    owner.execute(f"CREATE ROLE {role}")
    owner.execute(said.out)
    may = "SELECT has_table_privilege(%s, 'executions', 'INSERT'), has_table_privilege(%s, 'executions', 'DELETE')"
    assert owner.execute(may, (role, role)).fetchone() == (True, False)
    owner.execute(f"DROP OWNED BY {role}")
    owner.execute(f"DROP ROLE {role}")
    assert lastlight_state("grants", "--role", role, "--url", postgres_place.url, "--json").data["sql"] == said.out


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that everybody may reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@with_each("words", COMMANDS.values(), ids=COMMANDS)
def test_a_server_that_is_not_there(words: tuple[str, ...]) -> None:
    """migrations MG-66, maintenance OP-72."""
    said = lastlight_state(*words, "--url", "postgresql://ana:wonderland@127.0.0.1:1/agents", "--quiet")
    assert said.code == 6
    line = one_line(said)
    assert "postgresql://ana:***@127.0.0.1:1/agents: the database cannot be reached" in line
    assert "check its URL, that it exists, and that the server runs" in line


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_login_that_the_server_refuses(words: tuple[str, ...], postgres_server: ThrowawayPostgres) -> None:
    """migrations MG-66, maintenance OP-72: on stderr stands the server's own reason, and no password."""
    url = make_url(postgres_server.url).set(username="stranger", password="wonderland")
    said = lastlight_state(*words, "--url", url.render_as_string(hide_password=False), "--quiet")
    assert said.code == 6
    line = one_line(said)
    assert 'FATAL: role "stranger" does not exist' in line or "password authentication failed" in line
    assert "wonderland" not in line


def test_a_revision_that_is_unknown(place: Place) -> None:
    """migrations MG-66, maintenance OP-72: with those that are known."""
    place.at("0001")
    for words in (("migrate",), ("migrate", "--dry-run"), ("migrate", "--sql"), ("stamp",)):
        said = lastlight_state(*words, "--to", "9999", "--url", place.url, "--quiet")
        assert said.code == 2
        assert f"unknown revision '9999' (permitted: head, {', '.join(ALL)})" in one_line(said)
    assert current(place.backend()) == "0001"


def test_a_version_table_of_another_program(place: Place) -> None:
    """migrations MG-66, maintenance OP-72."""
    place.at()
    raw = place.raw()
    raw.execute("UPDATE lastlight_state_version SET version_num = 'ae1027a6acf'")
    for words in (("migrate",), ("migrate", "--dry-run"), ("migrate", "--sql"), ("check",)):
        said = lastlight_state(*words, "--url", place.url, "--quiet")
        assert said.code == 1
        assert "ae1027a6acf" in said.err
        assert f"the schema is that of revision {ALL[-1]}; run: lastlight-state stamp --to {ALL[-1]} --url" in said.err
    assert lastlight_state("current", "--url", place.url).code == 0
    assert raw.execute("SELECT version_num FROM lastlight_state_version").fetchone() == ("ae1027a6acf",)


@with_each("words", [words for name, words in COMMANDS.items() if name != "grants"])
def test_a_file_that_is_no_database(words: tuple[str, ...], tmp_path: Path) -> None:
    """migrations MG-66, maintenance OP-72."""
    file = tmp_path / "letter.db"
    file.write_text("a letter to somebody\n" * 100)
    said = lastlight_state(*words, "--url", file, "--quiet")
    assert said.code == 6
    assert "is not a sound SQLite database (SQLITE_NOTADB): check the path, or restore a backup" in one_line(said)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.db"]
    assert file.read_text() == "a letter to somebody\n" * 100


@with_each("words", [words for name, words in COMMANDS.items() if name != "grants"])
def test_a_directory_in_place_of_a_file(words: tuple[str, ...], tmp_path: Path) -> None:
    """migrations MG-66, maintenance OP-72."""
    (tmp_path / "folder.db").mkdir()
    said = lastlight_state(*words, "--url", tmp_path / "folder.db", "--quiet")
    assert said.code == 6
    assert "Is a directory" in one_line(said) or "check that it is a file" in said.err


@with_each("words", [("check",), ("current",), ("stamp",), ("stamp", "--force")])
def test_a_file_that_is_not_there(words: tuple[str, ...], tmp_path: Path) -> None:
    """migrations MG-27, maintenance OP-72: only migrating makes it."""
    said = lastlight_state(*words, "--url", tmp_path / "below" / "new.db", "--quiet")
    assert said.code == 6
    assert (
        f"no database at sqlite:///{tmp_path}/below/new.db; to make one, run: lastlight-state migrate --url "
        in one_line(said)
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("journal", ["", "PRAGMA journal_mode = WAL"])
def test_a_directory_that_may_not_be_written(folder: Path, journal: str) -> None:
    """migrations MG-66, maintenance OP-2, OP-72: nothing is created, and looking needs no right to write."""
    current_file, old_file = folder / "current.db", folder / "old.db"
    assert lastlight_state("migrate", "--url", current_file).code == 0
    with closing(sqlite3.connect(old_file)) as made:
        made.executescript(SEED + journal)
    for file in (current_file, old_file):
        file.chmod(0o444)
    folder.chmod(0o555)

    def ask() -> list[Any]:
        new = lastlight_state("migrate", "--url", folder / "new.db", "--quiet")
        old = lastlight_state("migrate", "--url", old_file, "--quiet")
        return [new.code, one_line(new), old.code, one_line(old), lastlight_state("check", "--url", current_file).code]

    new_code, new_line, old_code, old_line, check_code = as_nobody(ask)
    assert (new_code, old_code, check_code) == (6, 6, 0)
    for line in (new_line, old_line):
        assert "check that it is a file, and the rights to it and to its directory" in line
    assert sorted(path.name for path in folder.iterdir()) == ["current.db", "old.db"]
    folder.chmod(stat.S_IRWXU)


# --- passwords -------------------------------------------------------------------------------------------------------


@pytest.fixture
def owner_url(postgres_place: Place) -> Iterator[str]:
    """An empty database as its owner sees it, who has a difficult password."""
    role = f"owner_{uuid4().hex[:8]}"
    url = make_url(postgres_place.url)
    with connect(postgres_place.url) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        admin.execute(f'ALTER DATABASE "{url.database}" OWNER TO {role}')
        admin.execute(f"GRANT ALL ON SCHEMA public TO {role}")
    yield url.set(username=role, password=PASSWORD).render_as_string(hide_password=False)
    with connect(postgres_place.url) as admin:
        admin.execute(f'ALTER DATABASE "{url.database}" OWNER TO CURRENT_USER')
        admin.execute(f"DROP OWNED BY {role} CASCADE")
        admin.execute(f"DROP ROLE {role}")


@pytest.mark.slow
@pytest.mark.plain_postgres("makes roles that may use the schema public alone")
@pytest.mark.parametrize("way", ["flag", "file", "environment"])
def test_a_difficult_password_works_through_every_command_and_is_shown_by_none(
    way: str, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """migrations MG-68, maintenance OP-70, case 49."""
    given: list[str] = []
    if way == "flag":
        given = ["--url", owner_url]
    elif way == "file":
        (tmp_path / "url").write_text(owner_url + "\n")
        given = ["--url-file", str(tmp_path / "url")]
    else:
        monkeypatch.setenv("LASTLIGHT_STATE_URL", owner_url)
    asked = [
        (("check",), 3),
        (("migrate",), 0),
        (("grants", "--role", "service"), 0),
        (("migrate", "--to", "9999"), 2),
    ]
    more = [
        (("check",), 3),
        (("migrate", "--sql"), 0),
        (("migrate", "--dry-run"), 0),
        (("migrate", "--to", "0001"), 0),
        (("migrate",), 0),
        (("current",), 0),
        (("stamp",), 0),
        (("stamp", "--to", "0001"), 1),
        (("grants", "--role", "service"), 0),
        (("history",), 0),
        (("migrate", "--to", "9999"), 2),
    ]
    for words, code in more if way == "flag" else asked:
        for flags in ((), ("--json",)) if code else ((),):
            said = lastlight_state(*words, *given, *flags)
            assert said.code == code, said
            assert not any(spelling in said.out + said.err for spelling in SPELLINGS), said
