"""Texts of refused values are sentences about the argument: what is expected, not a fragment of what was found."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.trees import nodes

LIBRARY = Path(__file__).parents[2] / "lastlight_state"
REFUSALS = {"InvalidValue", "UnsafePath", "ReservedName"}
FRAGMENT = re.compile(r"(not|is no|is not a|blank|empty|lone|NaN|NUL|damaged|given|needs|no regular|a symbolic)\b")


def texts() -> Iterator[tuple[str, str]]:
    """Yield where a text of a refused value stands, and its beginning."""
    for file in sorted(LIBRARY.rglob("*.py")):
        for node in nodes(file):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REFUSALS and len(node.args) > 1:
                yield f"{file.relative_to(LIBRARY)}:{node.lineno}", _beginning(node.args[1])


def _beginning(text: ast.expr) -> str:
    """Return the words before the first value of a text; nothing for what is no text."""
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    return str(first.value) if isinstance(first, ast.Constant) else ""


def test_a_refused_value_is_told_in_a_sentence() -> None:
    found = list(texts())
    assert len(found) > 400
    assert [text for text in found if FRAGMENT.match(text[1])] == []
