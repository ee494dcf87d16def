from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import Target, lastlight_state
from support.each import with_each

from lastlight_state.cli import arguments, program as cli_program
from lastlight_state.cli.views.kinds import BY_NAME, KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
KEYS = PAGE.partition("## Keys of data\n")[2].partition("\n## ")[0]
COMMON = {name for option in arguments.options() for name in option.opts}


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Return what the site says of each command."""
    made: str = subprocess.run(
        [sys.executable, "-c", "import reference; print(reference.commands())"],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return dict(re.findall(r"^## `(.+?)`\n(.*?)(?=^## |\Z)", made, re.MULTILINE | re.DOTALL))


def flags_of(command: Any) -> set[str]:
    return {
        name for option in command.params for name in [*option.opts, *option.secondary_opts] if name.startswith("--")
    }


def documented_keys(command: str) -> list[str]:
    (keys,) = re.findall(rf"^\| .*`{command}`.* \| (.*) \|$", KEYS, re.MULTILINE)
    return re.findall(r"`([a-z_]+)`", keys)


def test_the_site_has_a_section_for_each_command_and_no_other(sections: dict[str, str]) -> None:
    """maintenance OP-73."""
    assert list(sections) == list(cli_program.COMMANDS)


@with_each("command", cli_program.COMMANDS)
def test_the_site_lists_the_flags_of_the_command(command: str, sections: dict[str, str]) -> None:
    """maintenance OP-73."""
    flags = {
        flag
        for cell in re.findall(r"^\| (.+?) \|", sections[command], re.MULTILINE)
        for flag in re.findall("`(--[a-z-]+)`", cell)
    }
    assert flags == flags_of(cli_program.command(command)) - COMMON


@with_each("command", ["check", "current", "history", "ls", "show", "stats", "usage"])
def test_the_page_names_the_keys_of_the_data(command: str, sqlite_targets: dict[str, Target]) -> None:
    """maintenance OP-71, OP-73."""
    target = sqlite_targets["populated"]
    key = {"show": ["run", target.ids.run], "ls": ["runs"]}.get(command, [])
    assert set(documented_keys(command)) == set(lastlight_state(command, *key, "--url", target.url, "--json").data)


def test_the_page_names_the_keys_of_a_migration(tmp_path: Path) -> None:
    """maintenance OP-71, OP-73."""
    said = lastlight_state("migrate", "--url", tmp_path / "new.db", "--json")
    assert set(documented_keys("migrate")) == set(said.data)


def test_help_of_each_command_tells_its_flags() -> None:
    """maintenance OP-70."""
    for command in cli_program.COMMANDS:
        told = lastlight_state(command, "--help").out
        for flag in flags_of(cli_program.command(command)):
            assert flag in told


@with_each(("command", "kinds"), [("ls", KINDS), ("show", BY_NAME)])
def test_help_names_the_kinds_of_record(command: str, kinds: dict[str, Any]) -> None:
    """maintenance OP-70."""
    told = lastlight_state(command, "--help").out
    listed = re.search(r"KIND is ([^.]*)\.", told)
    assert listed is not None
    assert [kind for kind in kinds if kind not in listed[1]] == []
