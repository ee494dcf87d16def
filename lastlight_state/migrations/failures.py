"""Translates a driver's errors, also those that SQLAlchemy has wrapped, to errors of this library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from lastlight_state.backends.base import Backend


@contextmanager
def translated(backend: Backend) -> Iterator[None]:
    """Run a block in which a failure of the driver is raised as the backend's error."""
    try:
        yield
    except backend.driver_errors as error:
        raise backend.translate(error) from error
    except DBAPIError as error:
        cause = error.orig
        raise (backend.translate(cause) if isinstance(cause, backend.driver_errors) else error) from cause
