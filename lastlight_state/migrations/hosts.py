"""Room for the Alembic of a host application, which may be in the middle of its own migrations when it calls us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import context, op


@contextmanager
def environment_kept() -> Iterator[None]:
    """A block that may run Alembic, after which the environment is current again that was so before.

    Alembic keeps its environment and its operations in these modules, one at a time. Called from a host's ``env.py``,
    or from a revision of its own, we would leave the host without its.
    """
    before = [(vars(module), dict(vars(module))) for module in (context, op)]
    try:
        yield
    finally:
        for names, kept in before:
            names.update(kept)
