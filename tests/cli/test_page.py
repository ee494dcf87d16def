from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import Target, lastlight_state

from lastlight_state.cli import arguments, program as cli_program
from lastlight_state.cli.views.kinds import BY_NAME, KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = {
    heading.strip("`"): text
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
COMMON = {name for option in arguments.options() for name in option.opts}


def flags_in(section: str) -> set[str]:
    shared = re.findall(r"^Shared flags: (.*)$", SECTIONS[section], re.MULTILINE)
    named = {name for line in shared for name in re.findall(r"`(--[a-z-]+)`", line)}
    assert named <= set(re.findall(r"`(--[a-z-]+)`", SECTIONS["Flags of several commands"]))
    return named | set(re.findall(r"^\| `(--[a-z-]+)`", SECTIONS[section], re.MULTILINE))


def flags_of(command: Any) -> set[str]:
    return {name for option in command.params for name in option.opts if name.startswith("--")}


def documented_keys(command: str) -> list[str]:
    (line,) = re.findall(r"^`data`: (.*)$", SECTIONS[command], re.MULTILINE)
    return re.findall(r"`([a-z_]+)`", line.partition(";")[0])


def test_the_page_has_a_section_for_each_command_and_no_other() -> None:
    """maintenance OP-73."""
    documented = [heading for heading in SECTIONS if f"## `{heading}`" in PAGE]
    assert documented == list(cli_program.COMMANDS)


@pytest.mark.parametrize("command", cli_program.COMMANDS)
def test_the_page_lists_the_flags_of_the_command(command: str) -> None:
    """maintenance OP-73."""
    assert flags_in(command) == flags_of(cli_program.command(command)) - COMMON


@pytest.mark.parametrize("command", cli_program.COMMANDS)
def test_the_page_shows_what_the_command_prints(command: str) -> None:
    """maintenance OP-73."""
    assert "```text\n" in SECTIONS[command]


def test_the_page_lists_the_flags_of_all_commands() -> None:
    """maintenance OP-73."""
    program = cli_program.commands()
    assert flags_in("Common flags") == flags_of(program) | {"--help"}


@pytest.mark.parametrize("command", ["check", "current", "history", "ls", "show", "stats", "usage"])
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


@pytest.mark.parametrize(("command", "kinds"), [("ls", KINDS), ("show", BY_NAME)])
def test_help_names_the_kinds_of_record(command: str, kinds: dict[str, Any]) -> None:
    """maintenance OP-70."""
    told = lastlight_state(command, "--help").out
    listed = re.search(r"KIND is ([^.]*)\.", told)
    assert listed is not None
    assert [kind for kind in kinds if kind not in listed[1]] == []
