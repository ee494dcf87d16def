"""Commands in texts of the library: each names the database that it is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.trees import reading, tree

import lastlight_state
from lastlight_state.cli.program import COMMANDS

PACKAGE = Path(lastlight_state.__file__).parent
SPELT = re.compile(rf"\blastlight-state (?:{'|'.join(map(re.escape, COMMANDS))})\b")

#: Modules whose texts name commands without a database, and why that is right there.
WITHOUT = {
    "maintenance/doctor/conversations.py": "the doctor completes the remedies of all findings",
    "maintenance/doctor/files.py": "the same",
    "maintenance/doctor/contradictions.py": "the same",
    "maintenance/doctor/server.py": "the same",
    "migrations/apply.py": "on a connection of a service's own, whose URL is not known",
    "migrations/state.py": "commands of another version, which made the database",
    "migrations/verification.py": "a backup of the original, which is another database",
    "db/lists/pages.py": "a walk over pages, of whatever store",
    "backends/postgres/driver.py": "an error of any statement; the command prints what the owner has to run",
}


def documentation(parsed: ast.Module) -> set[int]:
    """The strings that document something, and are told to nobody."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(parsed) if isinstance(node, holders) and node.body]
    return {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}


def spelt_out() -> Iterator[str]:
    """The modules with a text that spells a command out, instead of asking the backend for it."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parsed = tree(file)
        silent = documentation(parsed)
        texts = (node for node in ast.walk(parsed) if isinstance(node, ast.Constant) and id(node) not in silent)
        if any(isinstance(text.value, str) and SPELT.search(text.value) for text in texts):
            yield file.relative_to(PACKAGE).as_posix()


@pytest.fixture(scope="module")
def modules() -> Iterator[list[str]]:
    """Those modules."""
    with reading():
        yield list(spelt_out())


def test_a_command_in_a_text_names_its_database(modules: list[str]) -> None:
    """Write it by ``backend.command(…)``: pasted as it stands it must not reach another database."""
    assert modules == sorted(WITHOUT)
