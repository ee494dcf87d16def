"""What a guard of the database does to a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lastlight_state.backends.sqlite.dbapi import error_name


def code_of(error: BaseException) -> tuple[str | None, str | None]:
    """What either driver of SQLite, and that of Postgres, tell of an error by name."""
    return error_name(error), getattr(error, "sqlstate", None)


@contextmanager
def refused() -> Iterator[None]:
    """The block must end with the driver's own error for a statement that a guard refuses, told by its code."""
    with pytest.raises(Exception, match=r".") as caught:
        yield
    assert code_of(caught.value) in (("SQLITE_CONSTRAINT_TRIGGER", None), (None, "LL001"))
