"""Where the revisions are and what they are called. None of them is run for that, so Alembic is not needed.

An installed wheel carries them inside the package; a checkout, editable installs included, has them in ``alembic/``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from lastlight_state.migrations.records import Revision

_PACKAGE = Path(__file__).parents[1]


@cache
def folder() -> Path:
    """The folder with ``env.py`` and ``versions/``. Raises `FileNotFoundError` naming where it was looked for."""
    places = (_PACKAGE / "_migrations", _PACKAGE.parent / "alembic")
    for place in places:
        if (place / "env.py").is_file() and (place / "versions").is_dir():
            return place
    raise FileNotFoundError(f"no revisions in {places[0]} or {places[1]}: the installation is incomplete")


@cache
def revisions() -> tuple[str, ...]:
    """All revisions, oldest first. Their files begin with their four digits, and the line of revisions has no forks."""
    return tuple(path.name[:4] for path in _files())


def head() -> str:
    """The newest revision that this library knows."""
    return revisions()[-1]


def history() -> tuple[Revision, ...]:
    """All revisions that this library knows, oldest first."""
    return tuple(_read(path) for path in _files())


def _files() -> list[Path]:
    return sorted((folder() / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def _read(path: Path) -> Revision:
    module = ast.parse(path.read_text(encoding="utf-8"))
    said: dict[str, Any] = {
        name.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    summary, *_ = (ast.get_docstring(module) or "").split("\n\n")
    return Revision(said["revision"], said["down_revision"], summary)
