"""Each call that looks and then writes has a test in which somebody comes in between."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: How a repository runs a work that may be several statements.
UNITS = {"_writing", "_chained"}
#: How it runs a lone statement that writes, and how it reads.
LONE = {"_once", "_changed"}
READS = {"_reading", "_viewing", "_find", "_one", "_all", "_value", "get", "find"}
#: Where the tests are that let somebody come in between. They name the call, as an id of a parameter or in words.
RACES = ("test_locked_looks.py", "test_second_looks.py", "test_lost_races.py", "looks.py")

#: Calls of which one statement both looks and writes, and what their other statements are for.
AT_ONCE = {
    "Cache.ensure": "reads the entry that stood in the way; tests/outputs/test_locked_looks.py",
    "Claims._holding": "says why the claim is lost",
    "Claims.heartbeat_many": "says why claims are lost",
    "Crons.retire": "reads what is stored after the statement that decided",
    "Fires._held": "says why the claim is lost",
    "Inputs.override": "says which revision is in force",
    "Sessions._insert": "says who stood in the way",
}


def works() -> Iterator[str]:
    """The methods of repositories that write after a look, or in several statements."""
    for file in sorted((ROOT / "lastlight_state").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and "Repository" in str(_bases(node)):
                methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
                yield from (f"{node.name}.{method.name}" for method in methods if _looks_and_writes(method))


def _bases(node: ast.ClassDef) -> list[str]:
    """All repositories inherit from a class of one of these names."""
    kinds = {"Numbered": "Repository", "Targeted": "Repository"}
    return [kinds.get(ast.unparse(base), ast.unparse(base)) for base in node.bases]


def _looks_and_writes(method: ast.FunctionDef) -> bool:
    if method.name == "__init__":
        return False
    own = [
        part.attr
        for part in ast.walk(method)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self"
    ]
    writes_twice = bool(UNITS & set(own)) or ("_scope" in own and "decide" in ast.unparse(method))
    return writes_twice or (bool(LONE & set(own)) and bool(READS & set(own)))


def named() -> set[str]:
    """The calls that tests of races name."""
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name in RACES]
    return {found for file in files for found in re.findall(r"\b[A-Z]\w+\.\w+\b", file.read_text())}


def test_repositories_are_found() -> None:
    """The walk sees what it is meant to see."""
    assert {"Runs.finish", "Claims.take", "Events.append", "Results._put", "Sessions.resume"} <= set(works())


def test_a_call_that_looks_and_then_writes_is_named_by_a_test_of_races() -> None:
    """Look, then write, has a test in which something changes in between."""
    assert sorted(set(works()) - named() - set(AT_ONCE)) == [], f"add a race to one of {', '.join(RACES)}"


def test_what_is_excused_is_there() -> None:
    """No reason outlives its call."""
    assert set(AT_ONCE) <= set(works())
