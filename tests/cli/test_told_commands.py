"""Commands that errors and findings tell are done as they stand, and work on the database that they speak of."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each

from lastlight_state import NotMigrated, SchemaMismatch, StateStore
from lastlight_state.backends import connect, open_backend
from lastlight_state.backends.base import Options
from lastlight_state.settings import load_settings
from lastlight_state.testing import Database

VARIABLE = "LASTLIGHT_STATE_URL"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Do a command in a shell, in a folder without a database."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.setenv("STATE_DIR", str(place / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def done(command: str) -> subprocess.CompletedProcess[str]:
        made = subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, check=False)
        assert not (place / "state" / "lastlight.db").exists(), "another database was made"
        return made

    return done


def with_password(database: Database) -> str:
    """Return a URL with a password, which the server for tests does not ask for."""
    url = sa.make_url(str(database.url))
    return url.set(username=url.username or "postgres", password="geheim").render_as_string(hide_password=False)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["argument", "file", "variable", "variable of a file"])
def test_the_command_for_a_database_with_a_password_migrates_it(
    postgres_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Callable[[str], Any],
    given: str,
) -> None:
    """migrations MG-21."""
    url, file = with_password(postgres_database), tmp_path / "a url"
    file.write_text(url)
    arguments: dict[str, Any] = {"schema": "told"}
    if given == "argument":
        arguments["url"] = url
    elif given == "file":
        arguments["url_file"] = file
    else:
        monkeypatch.setenv(
            VARIABLE if given == "variable" else f"{VARIABLE}_FILE", url if given == "variable" else str(file)
        )
    with pytest.raises(NotMigrated) as caught:
        StateStore.open(**arguments)
    assert "geheim" not in str(caught.value)
    done = shell(caught.value.command)
    assert done.returncode == 0, done.stderr
    StateStore.open(url, schema="told").close()


@pytest.mark.slow
def test_a_command_whose_variable_is_not_set_works_on_no_other_database(
    monkeypatch: pytest.MonkeyPatch, shell: Callable[[str], Any]
) -> None:
    """migrations MG-21."""
    monkeypatch.setenv(VARIABLE, "postgresql://ana:geheim@127.0.0.1:1/db")
    command = connect(load_settings(None)).command("migrate")
    monkeypatch.delenv(VARIABLE)
    done = shell(command)
    assert (done.returncode, "--url: must not be empty" in done.stderr) == (2, True), done.stderr


@with_each(
    ("url", "told"),
    [
        ("postgresql://ana:geheim@127.0.0.1:1/db?sslpassword=auch", "--url postgresql://ana@127.0.0.1:1/db"),
        ("postgresql://ana:geheim@a:1,b:2/db", "--url 'postgresql://ana@/db?host=a%2Cb&port=1%2C2'"),
        ("postgresql://ana@127.0.0.1:1/a b", "--url 'postgresql://ana@127.0.0.1:1/a b'"),
    ],
)
def test_a_command_tells_no_password(url: str, told: str) -> None:
    """migrations MG-21."""
    backend = open_backend(url, Options(schema="Odd name"))
    assert backend.command("check") == f"lastlight-state check {told} --schema 'Odd name'"


@pytest.mark.slow
def test_the_command_for_a_file_works_on_that_file(tmp_path: Path, shell: Callable[[str], Any]) -> None:
    """migrations MG-21: whatever its name has."""
    path = tmp_path / "a $HOME & b%20.db"
    with pytest.raises(NotMigrated) as caught:
        StateStore.open(path, migrate=False)
    done = shell(caught.value.command)
    assert (done.returncode, path.exists()) == (0, True), done.stderr
    StateStore.open(path, migrate=False).close()


@pytest.mark.slow
def test_every_command_of_a_finding_names_the_database_that_was_looked_at(
    tmp_path: Path, shell: Callable[[str], Any]
) -> None:
    """maintenance OP-15."""
    path = tmp_path / "here.db"
    store = StateStore(connect(load_settings(None, url=str(path))), load_settings(None, url=str(path)))
    [finding] = [one for one in store.maintenance.doctor.examine(only=["DOC-01"]).findings if one.remedy]
    assert f"--url sqlite:///{path}" in str(finding.remedy)
    assert shell(str(finding.remedy)).returncode == 0
    assert path.exists()
    store.close()


@pytest.mark.slow
def test_a_lost_version_is_mended_by_the_command_that_is_told(tmp_path: Path, shell: Callable[[str], Any]) -> None:
    """migrations MG-21."""
    path = tmp_path / "here.db"
    StateStore.open(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE lastlight_state_version SET version_num = 'elsewhere'")
    with pytest.raises(SchemaMismatch) as caught:
        StateStore.open(path)
    assert shell(str(caught.value).partition("run: ")[2]).returncode == 0
    StateStore.open(path).close()


@pytest.mark.slow
def test_a_missing_database_is_told_with_the_command_that_makes_it(tmp_path: Path, shell: Callable[[str], Any]) -> None:
    """migrations MG-21."""
    path = tmp_path / "none.db"
    told = shell(f"lastlight-state ls --url {path}").stderr
    assert shell(told.partition("run: ")[2]).returncode == 0
    assert path.exists()
