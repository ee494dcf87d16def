"""Claims of several fires in one call, each a unit of its own: one that fails stops no other, and loses none.

What claims of due crons and of stale fires have in common.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from lastlight_state.errors import BackendError, MisuseError, StateError
from lastlight_state.schedules.arguments import FireClaim

Row = dict[str, Any]

_log = logging.getLogger("lastlight_state.schedules")


def claimed(rows: Iterable[Row], claim: Callable[[Row], FireClaim | None], limit: int) -> list[FireClaim]:
    """What ``claim`` gives for the rows, until there are ``limit``; None is no claim.

    A row that fails is logged and passed over. When the database fails, no other is tried, and what was claimed
    already reaches the caller. The error is raised if nothing could be claimed.
    """
    claims: list[FireClaim] = []
    failed: StateError | None = None
    try:
        for row in rows:
            try:
                found = claim(row)
            except (BackendError, MisuseError):
                raise
            except StateError as error:
                _log.warning("%r could not be claimed: %s", row.get("id", row.get("name")), error)
                failed = failed or error
                continue
            claims += [found] if found is not None else []
            if len(claims) == limit:
                break
    except BackendError as error:
        _log.warning("claims ended early: %s", error)
        failed = error
    if failed is not None and not claims:
        raise failed
    return claims
