"""The recipe for moving to Postgres, executed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.cli.calls import lastlight_state
from support.filled_store import scene

from lastlight_state.testing import Database

PAGE = (Path(__file__).parents[2] / "docs" / "moving-to-postgres.md").read_text(encoding="utf-8")
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def test_the_recipe_moves_a_populated_file_to_postgres(
    sqlite_database: Database, postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-50: with the commands as they are printed."""
    store, _ = scene(sqlite_database)
    runs = [run.id for run in store.workflows.runs.list(limit=100)]
    store.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LASTLIGHT_STATE_URL", sqlite_database.url)
    Path("postgres-url").write_text(postgres_database.url)
    assert len(COMMANDS) == 5
    for line in COMMANDS:
        said = lastlight_state(*shlex.split(line.removeprefix("lastlight-state ")))
        assert said.code == 0, (line, said)
    assert [run.id for run in postgres_database.open().workflows.runs.list(limit=100)] == runs
