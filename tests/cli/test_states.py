from __future__ import annotations

from pathlib import Path

from support.cli.calls import STATES, Target, files_of, lastlight_state
from support.each import with_each

LOOKING = {
    ("check",): (0, 0, 6, 3, 6),
    ("current",): (0, 0, 6, 0, 6),
    ("history",): (0, 0, 0, 0, 0),
    ("ls",): (0, 0, 6, 3, 6),
    ("ls", "runs"): (0, 0, 6, 3, 6),
    ("ls", "executions"): (0, 0, 6, 3, 6),
    ("ls", "approvals"): (0, 0, 6, 3, 6),
    ("ls", "messaging"): (0, 0, 6, 3, 6),
    ("ls", "questions"): (0, 0, 6, 3, 6),
    ("usage",): (0, 0, 6, 3, 6),
    ("receipts",): (0, 0, 6, 3, 6),
    ("show", "run"): (1, 0, 6, 3, 6),
    ("show", "execution"): (1, 0, 6, 3, 6),
    ("show", "approval"): (1, 0, 6, 3, 6),
    ("show", "messaging"): (1, 0, 6, 3, 6),
    ("stats",): (0, 0, 0, 0, 6),
}
"""The exit code of each command that only looks, by `STATES`."""


def expected(command: tuple[str, ...], target: Target) -> int:
    if command == ("stats",) and (target.backend, target.state) == ("postgresql", "missing"):
        return 6  # a server that answers "no such database" is out of reach; a missing file is nothing at all
    return LOOKING[command][STATES.index(target.state)]


def words(command: tuple[str, ...], target: Target) -> list[str]:
    key = [getattr(target.ids, command[1])] if command[0] == "show" else []
    return [*command, *key, "--url", target.url]


@with_each("command", LOOKING)
def test_each_command_that_looks_answers_with_one_object_in_every_state_of_the_database(
    command: tuple[str, ...], target: Target
) -> None:
    """maintenance OP-71, OP-72, OP-73, OP-11."""
    said = lastlight_state(*words(command, target), "--json")
    assert said.code == expected(command, target), said
    assert said.answer["command"] == command[0]


@with_each("command", LOOKING)
def test_people_get_lines_or_a_reason(command: tuple[str, ...], target: Target) -> None:
    """maintenance OP-71."""
    said = lastlight_state(*words(command, target))
    assert said.code == expected(command, target), said
    assert said.out or said.err
    assert bool(said.err) is (said.code != 0)
    assert "Traceback" not in said.err


@with_each("command", LOOKING)
def test_looking_leaves_a_file_and_its_folder_as_they_were(
    command: tuple[str, ...], sqlite_targets: dict[str, Target]
) -> None:
    """maintenance OP-2, OP-10."""
    folder = Path(sqlite_targets["empty"].url).parent
    before = files_of(folder)
    for target in sqlite_targets.values():
        lastlight_state(*words(command, target))
    assert files_of(folder) == before


def test_the_names_of_what_failed_are_stable(targets: dict[str, Target]) -> None:
    """maintenance OP-71."""
    codes = {state: lastlight_state("ls", "--url", target.url, "--json") for state, target in targets.items()}
    assert codes["missing"].error == "backend_unavailable"
    assert codes["behind"].error == "not_migrated"
    assert codes["unreachable"].error == "backend_unavailable"
    assert "lastlight-state migrate" in codes["behind"].answer["error"]["details"]["command"]
