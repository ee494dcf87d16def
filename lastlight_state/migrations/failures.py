"""Translates a driver's errors to this library's errors, even if SQLAlchemy has wrapped them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from lastlight_state.backends.base import Backend
from lastlight_state.errors import BackendUnavailable


@contextmanager
def translated_errors(backend: Backend) -> Iterator[None]:
    """Run a block in which a driver's error is raised as the backend's error."""
    try:
        yield
    except backend.driver_errors as error:
        raise backend.translate(error) from error
    except DBAPIError as error:
        raise _error_of(backend, error) from error.orig


def _error_of(backend: Backend, error: DBAPIError) -> Exception:
    if not isinstance(error.orig, backend.driver_errors):
        return error
    told = backend.translate(error.orig)
    if getattr(told, "reason", None) != "permission":
        return told
    return BackendUnavailable(
        f"the role lacks a right that the migration needs; as the owner of the tables run "
        f"{backend.command('migrate')}, or this statement: {error.statement}",
        reason="permission",
    )
