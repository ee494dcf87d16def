"""The recipes of the deploying page do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from alembic.config import CommandLine
from sqlalchemy import make_url
from support.cli.calls import lastlight_state
from support.docs.pages import ROOT, blocks
from support.migrations.originals import ROWS, SEED, original
from support.migrations.support import Place, tables

from lastlight_state.migrations import current, scripts

PAGE = ROOT / "docs" / "deploying.md"
HEAD = scripts.head()
YAML = [block.text for block in blocks(PAGE, "yaml")]
[UNIT] = [block.text for block in blocks(PAGE, "ini")]
[ENV] = [block.text for block in blocks(PAGE, "py")]


def commands_with(word: str) -> list[list[str]]:
    """The commands of the one ``bash`` block in which the word stands, without comments."""
    [block] = [block.text for block in blocks(PAGE, "bash") if word in block.text]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def run(place: Place, words: list[str], role: str = "agents_service") -> int:
    """Run a command line of the page on a database, and what it hands on to ``psql`` as its owner; the exit code."""
    words = [word.replace("agents_service", role) for word in words]
    if words[0] == "psql":
        place.raw().execute(Path(words[-1]).read_text())
        return 0
    assert words[0] == "lastlight-state"
    *asked, file = (*words[1:], None) if ">" not in words else (*words[1 : words.index(">")], words[-1])
    said = lastlight_state(*asked, "--url", place.url)
    if file is not None:
        Path(file).write_text(said.out)
    return said.code


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_pipeline_checks_and_migrates(postgres_place: Place) -> None:
    """packaging PT-24."""
    postgres_place.at("0001")
    assert [run(postgres_place, words) for words in commands_with("what would be done")] == [3, 0]
    assert current(postgres_place.backend()) == HEAD


@pytest.mark.slow
def test_a_file_of_the_original_is_looked_at_and_taken_over(sqlite_place: Place) -> None:
    """packaging PT-24."""
    original(sqlite_place, SEED, ROWS)
    assert [run(sqlite_place, words) for words in commands_with("taken over")] == [3, 0]
    assert current(sqlite_place.backend()) == HEAD


@pytest.mark.plain_postgres("runs a script as one text")
def test_administrators_run_the_script(postgres_place: Place) -> None:
    """packaging PT-24."""
    postgres_place.at("0001")
    assert [run(postgres_place, words) for words in commands_with("upgrade.sql")] == [0, 0]
    assert current(postgres_place.backend()) == HEAD


def test_a_service_gets_its_rights(postgres_place: Place) -> None:
    """packaging PT-24."""
    postgres_place.at()
    role = f"agents_{uuid4().hex[:8]}"
    raw = postgres_place.raw()
    raw.execute(f"CREATE ROLE {role} LOGIN")
    assert [run(postgres_place, words, role) for words in commands_with("grants.sql")] == [0, 0]
    url = make_url(postgres_place.url).set(username=role).render_as_string(hide_password=False)
    assert lastlight_state("check", "--url", url).code == 0
    raw.execute(f"DROP OWNED BY {role}")
    raw.execute(f"DROP ROLE {role}")


def container_command(container: str) -> list[str]:
    """The command of the container of that name."""
    [found] = [
        command
        for text in YAML
        for command in re.findall(rf"- name: {container}\n\s+image: .*\n\s+command: (\[.*\])", text)
    ]
    words: list[str] = json.loads(found)
    return words


def test_the_job_migrates(postgres_place: Place) -> None:
    """packaging PT-24: Kubernetes."""
    assert run(postgres_place, container_command("migrate")) == 0
    assert current(postgres_place.backend()) == HEAD


@pytest.mark.slow
def test_pods_start_when_the_schema_fits_or_is_newer(postgres_place: Place, tmp_path: Path) -> None:
    """packaging PT-24: the init container ends with exit code 0, and with 4."""
    postgres_place.at()
    postgres_place.raw().execute("UPDATE lastlight_state_version SET version_num = '9999'")
    program = tmp_path / "lastlight-state"
    program.write_text(f"#!{sys.executable}\nfrom lastlight_state.cli import main\nmain()\n")
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LASTLIGHT_STATE_URL": postgres_place.url,
    }
    done = subprocess.run(container_command("wait-for-schema"), env=environment, timeout=60, check=False)
    assert done.returncode == 0


def test_the_unit_migrates_before_it_starts(
    postgres_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-24: systemd, with the URL from a file."""
    [line] = re.findall(r"^ExecStartPre=/opt/agents/bin/(.*)$", UNIT, re.MULTILINE)
    [(name, file)] = re.findall(r"^Environment=(\w+)=%d/(\w+)$", UNIT, re.MULTILINE)
    (tmp_path / file).write_text(postgres_place.url)
    monkeypatch.setenv(name, str(tmp_path / file))
    words = shlex.split(line)
    assert words[0] == "lastlight-state"
    assert lastlight_state(*words[1:]).code == 0
    assert current(postgres_place.backend()) == HEAD


@pytest.mark.parametrize("caller", ["its env.py", "a revision of its own"])
def test_a_service_migrates_its_own_tables_with_ours(place: Place, tmp_path: Path, caller: str) -> None:
    """migrations MG-50, packaging PT-24: one transaction, two version tables, no proposal about our tables."""
    tree = tmp_path / "theirs"
    (tree / "versions").mkdir(parents=True)
    ours = "        migrations.upgrade_from_env()\n"
    assert ENV.count(ours) == 2
    (tree / "env.py").write_text(ENV if caller == "its env.py" else ENV.replace(ours, ""))
    (tree / "script.py.mako").write_text("")
    (tree / "versions" / "a1_orders.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\nrevision, down_revision = 'ae1027a6acf', None\n"
        "from lastlight_state.migrations import upgrade as ours\n"
        "def upgrade():\n    ours(op.get_bind())\n"
        "    op.create_table('orders', sa.Column('id', sa.Text(), primary_key=True))\n"
    )
    ini = tmp_path / "alembic.ini"
    url = place.url.replace("%", "%%")
    ini.write_text(f"[alembic]\nscript_location = {tree}\npath_separator = os\nsqlalchemy.url = {url}\n")
    for _ in range(2):
        CommandLine("alembic").main(["-c", str(ini), "upgrade", "head"])
    assert {"orders", "alembic_version", "lastlight_state_version", "workflow_runs"} <= tables(place.backend())
    assert current(place.backend()) == HEAD
