"""The revisions' folder and names. They are read without running a revision, so Alembic is not needed.

An installed wheel has the revisions inside the package; a checkout, including an editable install, has them in
``alembic/``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from lastlight_state.migrations.records import Revision

#: The revision of the original program's tables.
FIRST = "0001"

#: The version recorded in databases that were made during development, before any release. Their tables are not those
#: of a present revision, so they are refused.
_UNRELEASED = tuple(f"{number:04}" for number in range(2, 17))

_PACKAGE = Path(__file__).parents[1]


@cache
def folder() -> Path:
    """Return the folder with ``env.py`` and ``versions/``.

    If it is not found, raises `FileNotFoundError` with the places that were searched.
    """
    places = (_PACKAGE / "_migrations", _PACKAGE.parent / "alembic")
    for place in places:
        if (place / "env.py").is_file() and (place / "versions").is_dir():
            return place
    raise FileNotFoundError(f"no revisions in {places[0]} or {places[1]}: the installation is incomplete")


@cache
def revisions() -> tuple[str, ...]:
    """Return the names of all revisions, oldest first.

    They are the names of the revisions' files, which begin with four digits; the first one is only a number. Each
    revision has at most one successor.
    """
    return tuple(FIRST if path.stem.startswith(f"{FIRST}_") else path.stem for path in _files())


def head() -> str:
    """Return the newest revision that this library knows."""
    return revisions()[-1]


def was_never_released(revision: str | None) -> bool:
    """True for a revision of a development version, whose schema no release can read."""
    return revision in _UNRELEASED


def history() -> tuple[Revision, ...]:
    """Return all revisions that this library knows, oldest first."""
    return tuple(_read(path) for path in _files())


def _files() -> list[Path]:
    return sorted((folder() / "versions").glob("[0-9][0-9][0-9][0-9]*.py"))


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
