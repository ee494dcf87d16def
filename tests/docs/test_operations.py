"""The page of a service's night, executed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.cli.calls import lastlight_state
from support.maintenance.run_folders import branch, message, write_run

from lastlight_state.testing import Database

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_command_of_the_night_works_as_it_is_printed(
    fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-1, OP-30, OP-72: nothing is wrong with an empty database; what is archived comes back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir()
    fresh_database.state_dir.mkdir(exist_ok=True)
    for logs in ("agent-sessions", "sessions"):
        (fresh_database.state_dir / logs).mkdir(mode=0o700)
    write_run(tmp_path / "runs", "r1", branch("b1", [message("m1", 1)]))
    commands = [line for block in BLOCKS for line in block.splitlines()]
    assert len(commands) >= 10
    for line in commands:
        words = [one for word in shlex.split(line.removeprefix("lastlight-state ")) for one in _found(word)]
        said = lastlight_state(*words, "--url", fresh_database.url, "--state-dir", fresh_database.state_dir)
        assert said.code == 0, (line, said)
    assert fresh_database.open().conversations.sessions.find("r1") is not None
    assert len(list((tmp_path / "archive").iterdir())) == 1


def _found(word: str) -> list[str]:
    """The word as a shell gives it to a program: the files that it stands for, if there are any."""
    return sorted(map(str, Path().glob(word))) if word.endswith("*.zip") else [word]
