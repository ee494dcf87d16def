"""Keeps the Alembic environment of a host application that calls us in the middle of its own migrations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import context, op


@contextmanager
def environment_kept() -> Iterator[None]:
    """A block that may run Alembic. Afterwards Alembic's current environment is the one of before.

    Alembic keeps one environment and one set of operations in these modules. Without this, a host that calls us from
    its ``env.py`` or from a revision would lose its own.
    """
    before = [(vars(module), dict(vars(module))) for module in (context, op)]
    try:
        yield
    finally:
        for names, kept in before:
            names.update(kept)
