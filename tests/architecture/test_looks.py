"""Each call that looks and then writes has a test in which somebody comes in between."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from support.trees import nodes, tree

ROOT = Path(__file__).parents[2]
#: How a repository runs a work that may be several statements.
UNITS = {"_writing", "_chained"}
#: How it runs a lone statement that writes, and how it reads.
LONE = {"_once", "_apart", "_change_row", "_change_row_as"}
READS = {
    *("_reading", "_viewing", "_find", "_find_as", "_get_row", "_get_row_as", "_list_rows", "_list_rows_as", "_value"),
    *("get", "find"),
}
#: Where the tests are that let somebody come in between. They name the call, as an id of a parameter or in words.
RACES = ("test_locked_looks.py", "test_second_looks.py", "test_lost_races.py", "looks.py")

#: Calls of which one statement both looks and writes, and what their other statements are for.
AT_ONCE = {
    "Cache.ensure": "reads the entry that stood in the way; tests/outputs/test_locked_looks.py",
    "Claims.heartbeat_many": "says why claims are lost",
    "Crons.retire": "reads what is stored after the statement that decided",
    "Fires._write_held": "says why the claim is lost",
    "Inputs.override": "says which revision is in force",
    "Lifecycle.heartbeat": "says why it is refused",
    "Lifecycle.record_verification": "tells the feed of what the statement has changed",
    "Sessions.hold": "reads what is stored after the statement that decided",
    "Sessions._insert": "says who stood in the way",
    "States.expire": "says which version is there",
    "States.merge": "says which version is there; each of its statements decides for a key",
    "States.put": "says which version is there",
    "States.remove": "says which version is there",
    "Vacuum.run": "reads the size before and after, and which tables there are",
}

#: Where files are written beside other writers, and what changes them.
FILES = ("files/jsonl", "files/agent_log", "files/run_log")
CHANGES = {"write", "open", "link", "rename", "replace", "unlink", "rmdir", "mkdir", "ftruncate", "symlink"}
#: Functions of which one system call both looks and writes, or that write nothing.
FILES_AT_ONCE = {
    "files.open_directory": "opens to read",
    "files.listable": "opens to read",
    "files.sync": "opens to read",
    "files._open_child": "opens to read",
    "repair._lock_log": "opens to read",
    "repair._size_if": "opens to read",
    "upkeep._pack_into": "under the run's lock, which Upkeep._pack takes before it looks",
    "upkeep._remove_leftovers": "under the run's lock, which Upkeep._pack takes before it looks",
}
#: How a migration takes its lock.
LOCKING = {"migration", "hold_migration_lock"}


@cache
def works() -> frozenset[str]:
    """The methods of repositories that write after a look, or in several statements."""
    return frozenset(_works())


def _works() -> Iterator[str]:
    for file in sorted((ROOT / "lastlight_state").rglob("*.py")):
        for node in nodes(file):
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


def changing_files() -> Iterator[str]:
    """The functions that change files which others may change."""
    for package in FILES:
        yield from _calling(package, lambda call: _owner(call) == "os" and _name(call) in CHANGES)


def locking_migrations() -> Iterator[str]:
    """The functions that look at a schema, take the lock of migrations, and write."""
    yield from _calling("migrations", lambda call: _name(call) in LOCKING)


def _calling(package: str, wanted: Callable[[ast.Call], bool]) -> Iterator[str]:
    for file in sorted((ROOT / "lastlight_state" / package).rglob("*.py")):
        name = file.parent.name if file.stem == "__init__" else file.stem
        for owner, function in _functions(tree(file), name):
            if any(isinstance(part, ast.Call) and wanted(part) for part in ast.walk(function)):
                yield f"{owner}.{function.name}"


def _functions(tree: ast.Module, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = node.name if isinstance(node, ast.ClassDef) else name
        yield from ((owner, part) for part in inside if isinstance(part, ast.FunctionDef))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _owner(call: ast.Call) -> str:
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


@cache
def named() -> set[str]:
    """The calls that tests of races name."""
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name in RACES]
    return {found for file in files for found in re.findall(r"\b\w+\.\w+\b", file.read_text())}


def test_repositories_are_found() -> None:
    """The walk sees what it is meant to see."""
    assert {"Runs.finish", "Claims.take", "Events.append", "Results._put", "Sessions.resume"} <= works()


def test_a_call_that_looks_and_then_writes_is_named_by_a_test_of_races() -> None:
    """Look, then write, has a test in which something changes in between."""
    assert sorted(works() - named() - set(AT_ONCE)) == [], f"add a race to one of {', '.join(RACES)}"


def test_a_function_that_changes_files_is_named_by_a_test_of_races() -> None:
    """Others write, replace and remove line files between a look and a write."""
    changing = set(changing_files())
    assert {"LineWriter._put", "repair.replace", "files.replace"} <= changing
    assert sorted(changing - named() - set(FILES_AT_ONCE)) == [], "add a race to test_lost_races.py of its package"


def test_a_migration_that_looks_before_its_lock_is_named_by_a_test_of_races() -> None:
    """Others migrate, adopt and stamp between the look and the lock."""
    locking = set(locking_migrations())
    assert {"runner.migrate", "runner.stamp"} <= locking
    assert sorted(locking - named()) == [], "add a race to tests/migrations/test_lost_races.py"


def test_what_is_excused_is_there() -> None:
    """No reason outlives its call."""
    assert set(AT_ONCE) <= works()
    assert set(FILES_AT_ONCE) <= set(changing_files())
