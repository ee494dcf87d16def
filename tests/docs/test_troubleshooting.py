"""The page of troubleshooting has a line for each code that an error can have."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from typing import Any

from support.docs.pages import ROOT

from lastlight_state import errors

PAGE = ROOT / "docs" / "troubleshooting.md"

ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.StateError)
}


def on_the_page() -> set[str]:
    """The codes in the first cells of the page's tables, and those of its last lists."""
    tables, _, rest = PAGE.read_text("utf-8").partition("\n## When something may have been written\n")
    cells = re.findall(r"^\| (`.+?) \|", tables, re.MULTILINE)
    items = re.findall(r"^- (`\w+`)", rest, re.MULTILINE)
    return {code for text in (*cells, *items) for code in re.findall(r"`(\w+)`", text)}


@cache
def in_the_library() -> list[tuple[str, ast.expr]]:
    """Each ``code=`` that is given to an error, and the module of that call."""
    found: list[tuple[str, ast.expr]] = []
    for file in sorted((ROOT / "lastlight_state").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if "code=" not in (text := file.read_text("utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                found += [(module, word.value) for word in node.keywords if word.arg == "code"]
    return found


def words(module: str, given: ast.expr) -> set[str]:
    """The codes that the expression stands for; those of a pattern are found by `patterns`."""
    if isinstance(given, ast.Constant):
        return {str(given.value)}
    if isinstance(given, ast.Subscript):  # one of a table
        return set(_value(module, given.value).values())
    return set() if isinstance(given, ast.JoinedStr) else {_value(module, given)}


def patterns() -> set[str]:
    """The beginnings of codes that end with a status."""
    from lastlight_state.workflows import approvals, human_requests

    [made] = [given for _, given in in_the_library() if isinstance(given, ast.JoinedStr)]
    assert ast.unparse(made) == "f'{self.shape.prefix}_{status}'"
    rooms = (approvals.statements, human_requests.statements)
    return {f"{room.QUESTIONS.shape.prefix}_" for room in rooms}


def _value(module: str, name: ast.expr) -> Any:
    return eval(ast.unparse(name), vars(importlib.import_module(module)))


def test_every_code_of_an_error_has_its_line() -> None:
    """packaging PT-34."""
    known = {kind.code for kind in ERRORS.values()}
    for module, given in in_the_library():
        known |= words(module, given)
    stated = on_the_page()
    assert known - stated == set()
    beginnings = tuple(patterns())
    assert {code for code in stated - known if not code.startswith(beginnings)} == set()


def test_every_state_of_a_question_that_a_code_ends_with_has_its_line() -> None:
    """packaging PT-34: an approval is used while it is approved, a request is reopened when it was answered."""
    from lastlight_state.workflows.words import APPROVAL_STATUSES, HUMAN_STATUSES

    assert patterns() == {"approval_", "request_"}
    expected = {f"approval_{word}" for word in set(APPROVAL_STATUSES) - {"approved"}}
    expected |= {f"request_{word}" for word in set(HUMAN_STATUSES) - {"answered"}}
    assert expected <= on_the_page()
