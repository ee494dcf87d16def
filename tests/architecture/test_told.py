"""What goes wrong is told: nobody catches everything in silence, and every warning is seen by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.trees import nodes

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "lastlight_state").rglob("*.py"))
#: A reason on a handler's line, behind a code for the linter.
REASON = re.compile(r"#\s*(noqa: [A-Z0-9]+)?[\s-]*\w{2,}")
LOGGED = {"warning", "error", "exception", "critical"}


def silent_handlers() -> Iterator[str]:
    """Handlers of every exception on whose line no reason stands."""
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not REASON.search(lines[node.lineno - 1]):
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {"all"}
    raises = any(isinstance(node, ast.Raise) for line in handler.body for node in ast.walk(line))
    return bool(caught & {"all", "Exception"}) or ("BaseException" in caught and not raises)


def warnings() -> Iterator[str]:
    """The texts that the library logs as a warning or worse."""
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
                text = node.args[0] if node.args and ast.unparse(node.func.value) == "_log" else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value


@cache
def said_by_tests() -> frozenset[str]:
    """Texts of the tests that look at what is logged."""
    return frozenset(_said_by_tests())


def _said_by_tests() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "caplog" in text or "mark.logs" in text:
            constants = (node.value for node in nodes(path) if isinstance(node, ast.Constant))
            yield from (value for value in constants if isinstance(value, str) and len(value) > 8)


def test_who_catches_everything_says_why() -> None:
    """house H-9: on the line, or else raises it again."""
    assert list(silent_handlers()) == []


def test_every_warning_is_seen_by_a_test() -> None:
    """house H-56."""
    assert [text for text in warnings() if not any(_is_of(said, text) for said in said_by_tests())] == []


def _is_of(said: str, text: str) -> bool:
    """Whether a test names a text, with values or without. One that has hardly any words of its own cannot be found."""
    parts = [part.strip(" :,;") for part in re.split("%[a-z]", text)]
    telling = [part for part in parts if len(part) > 6]
    return not telling or any(part in said or said in part for part in telling)
