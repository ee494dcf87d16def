"""Errors of a driver that come through SQLAlchemy, as errors of this library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from lastlight_state.backends.base import Backend


@contextmanager
def translated(backend: Backend) -> Iterator[None]:
    """A block that raises the backend's errors where its driver failed."""
    try:
        yield
    except backend.driver_errors as error:
        raise backend.translate(error) from error
    except DBAPIError as error:
        cause = error.orig
        raise (backend.translate(cause) if isinstance(cause, backend.driver_errors) else error) from cause
