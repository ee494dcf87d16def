"""Where the revisions are, and what they are called, without loading one.

An installed wheel carries them inside the package; a checkout, editable installs included, has them in ``alembic/``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
    return tuple(sorted(path.name[:4] for path in (folder() / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))


def head() -> str:
    """The newest revision that this library knows."""
    return revisions()[-1]
