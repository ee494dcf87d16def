"""Taking several fires in one call, each in a transaction of its own. Shared by `take_due` and `take_stale`.

A row that cannot be taken does not keep the others from being taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from lastlight_state.db.statements import RowT
from lastlight_state.errors import BackendError, CorruptData, MisuseError, StateError
from lastlight_state.schedules.arguments import ClaimRow, FireClaim

_log = logging.getLogger("lastlight_state.schedules")


def claimed(
    rows: Iterable[RowT | CorruptData], claim: Callable[[RowT], FireClaim | None], limit: int
) -> tuple[FireClaim, ...]:
    """Return at most ``limit`` claims, one from each row for which ``claim`` does not return None.

    A row that fails or cannot be read is logged and passed over. After a database error no other row is tried. The
    first error is raised only if nothing was claimed, so that the caller always gets the claims that were stored.
    """
    claims: list[FireClaim] = []
    failed: StateError | None = None
    try:
        for row in rows:
            try:
                found = claim(_sound(row))
            except (BackendError, MisuseError):
                raise
            except StateError as error:
                _log.warning("%r could not be taken: %s", _name(row), error)
                failed = failed or error
                continue
            claims += [found] if found is not None else []
            if len(claims) == limit:
                break
    except BackendError as error:
        _log.warning("taking fires ended early: %s", error)
        failed = error
    if failed is not None and not claims:
        raise failed
    return tuple(claims)


def claim_of(row: ClaimRow, lease: timedelta) -> FireClaim:
    """Return the claim on the fire of a row, which renews by ``lease``."""
    return FireClaim.of({**row, "lease": lease})


def _sound(row: RowT | CorruptData) -> RowT:
    if isinstance(row, CorruptData):
        raise row
    return row


def _name(row: Any) -> Any:
    return row.key if isinstance(row, CorruptData) else row.get("id", row.get("name"))
