"""Checks of arguments that several repositories of this domain share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import RowT
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import BackendError, CorruptData, InvalidValue, MisuseError, StateError
from lastlight_state.schedules import models
from lastlight_state.schedules.arguments import FireClaim, FireError
from lastlight_state.schedules.models import FIRES, SCHEDULES

# Taking several fires in one call, each in a transaction of its own. Shared by `take_due` and `take_stale`.
#
# A row that cannot be taken does not stop other rows from being taken.

_log = logging.getLogger("lastlight_state.schedules")


def claim_rows(
    rows: Iterable[RowT | CorruptData], claim: Callable[[RowT], FireClaim | None], limit: int
) -> tuple[FireClaim, ...]:
    """Return at most ``limit`` claims, one for each row for which ``claim`` returns a claim.

    A row that fails or cannot be read is logged and skipped. After a database error no further row is tried. The first
    error is raised only if there is no claim at all, so that the caller always gets the claims that were stored.
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


def _sound(row: RowT | CorruptData) -> RowT:
    if isinstance(row, CorruptData):
        raise row
    return row


def _name(row: Any) -> Any:
    return row.key if isinstance(row, CorruptData) else getattr(row, "id", getattr(row, "name", None))


_LIMITS, _FIRE = limits_of(SCHEDULES), limits_of(FIRES)


def name(where: str, value: Any) -> str:
    """Check the name of a cron and return it."""
    return valid.identifier(where, value, _LIMITS.name)


#: The most names, and the most targets, by which a call filters.
MOST_CHOSEN = 50


def cron_filters(names: Any, targets: Any) -> dict[str, list[str] | None]:
    """Return the filters by cron name and by target. None matches all crons."""
    return {"cron_name": _several("names", names, _LIMITS.name), "target": _several("targets", targets, _LIMITS.target)}


def _several(where: str, given: Any, limit: int) -> list[str] | None:
    if given is None:
        return None
    several = valid.several(where, given)
    valid.at_most(where, several, MOST_CHOSEN)
    return [valid.identifier(where, each, limit) for each in several]


def owner(value: Any) -> str:
    """Check the name of the process that runs fires, and return it."""
    return valid.identifier("owner", value, _FIRE.owner)


def lease(value: Any) -> timedelta:
    """Check the length of a lease, one second to 24 hours, and return it."""
    return valid.duration("lease", value, least=models.SHORTEST_LEASE, most=models.LONGEST_LEASE)


def claims(value: Any) -> int:
    """Check the maximum number of fires that a call takes, 1 to 100, and return it."""
    return valid.number("limit", value, least=1, most=models.CLAIMS)


def payload(where: str, value: Any) -> str | None:
    """Return a payload as JSON text, or None."""
    return None if value is None else codec.encode(where, value, max_bytes=_LIMITS.payload)


def error(where: str, given: Any) -> str | None:
    """Return an error as JSON text. A plain text becomes its message.

    Raises `PayloadTooLarge` for more than 16 KiB.
    """
    if given is None:
        return None
    if isinstance(given, str):
        given = FireError(given)
    if not isinstance(given, FireError):
        raise InvalidValue(where, f"expected a FireError or text, got {type(given).__name__}")
    valid.content(f"{where}.message", given.message, _FIRE.error_json)
    valid.optional_content(f"{where}.type", given.type, _FIRE.error_json)
    said = {"type": given.type, "message": given.message, "detail": given.detail}
    known = {key: value for key, value in said.items() if value is not None}
    return codec.encode(where, known, max_bytes=_FIRE.error_json)
