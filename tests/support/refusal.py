"""What a guard of the database does to a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused() -> Iterator[None]:
    """The block must end with the driver's own error for a statement that a guard refuses, told by its code."""
    with pytest.raises(Exception, match=r".") as caught:
        yield
    codes = (getattr(caught.value, "sqlite_errorname", None), getattr(caught.value, "sqlstate", None))
    assert codes in (("SQLITE_CONSTRAINT_TRIGGER", None), (None, "LL001"))
