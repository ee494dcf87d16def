"""The lease of a running run, which stands in a row beside it (`RunLeaseModel`).

A run's own columns say what the last take or release made of them. While somebody holds the run, its lease is renewed
beside it and its own columns stay; the two belong together where their epochs are equal. So a row beside it that does
not fit, whatever the reason, changes nothing: what the run itself says is so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import bind
from lastlight_state.workflows.tables import LEASES, RUNS


def present(name: str, beside: sa.FromClause | None = None) -> sa.ColumnElement[Any]:
    """The run's ``heartbeat_at`` or ``lease_expires_at`` as it was last renewed.

    Looks the row beside the run up by its key, unless it is one that the statement reads anyway.
    """
    own = RUNS.c[name]
    if beside is not None:
        renewed: Any = sa.case((beside.c.epoch == RUNS.c.claim_epoch, beside.c[name]))
    else:
        found = sa.select(LEASES.c[name]).where(LEASES.c.run_id == RUNS.c.id, LEASES.c.epoch == RUNS.c.claim_epoch)
        renewed = found.correlate_except(LEASES).scalar_subquery()
    return sa.func.coalesce(renewed, own, type_=own.type)


HEARTBEAT_AT = present("heartbeat_at")
LEASE_END = present("lease_expires_at")

_at = bind("at", LEASES.c.due_at)
_LONG_AGO: sa.ColumnElement[Any] = sa.literal_column("'0001-01-01T00:00:00.000Z'")


def due(shown: Iterable[Any], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The leases that somebody has to look at by ``:at``.

    Postgres guesses a third of the table for an open range, and for what is due all of it once its statistics are an
    hour old: then it would read the table. For a closed range whose ends it does not know it guesses one in 200.
    """
    first, last = (sa.select(sa.cast(end, _at.type)).scalar_subquery() for end in (_LONG_AGO, _at))
    return sa.select(*shown).where(LEASES.c.due_at.between(first, last), *conditions)
