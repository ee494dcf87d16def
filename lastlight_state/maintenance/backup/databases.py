"""Copies of SQLite files at one moment, and what is wrong with them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.db.unit import Unit


def snapshot(unit: Unit, path: Path) -> bool:
    """Copy the whole database to a new file at one moment; False where the product cannot.

    What an attempt left that was busy, and is repeated, is removed first.
    """
    path.unlink(missing_ok=True)
    return unit.backend.snapshot(unit.checkout, path)


#: Reads a copy and leaves nothing beside it.
AT_REST = Options(read_only=True, glance=True)


def damages(path: Path, options: Options = AT_REST) -> list[str]:
    """Return what the database itself says is wrong with a copy."""
    with closing(open_backend(path, options)) as backend, Checkout(Mode.READ, backend) as checkout:
        return backend.damages(checkout, deep=True)
