"""Taking over fires whose lease has expired, or abandoning those that had too many owners.

Each fire is changed in a transaction of its own, by a compare-and-set on its epoch: of several takers one gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.schedules import claiming
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.claiming import claim_of
from lastlight_state.schedules.fires import statements as sql
from lastlight_state.schedules.fires.checks import Held
from lastlight_state.schedules.fires.moves import tell_schedule
from lastlight_state.schedules.fires.statements import StaleFire
from lastlight_state.schedules.tables import FIRES

_MOST = limits_of(FIRES)

#: One of a repository's ways of running a work (`db.scope`).
Run = Callable[[Callable[[Unit], Any]], Any]


class LapsedClaim(Held):
    """A claim whose lease has expired ``now``."""

    now: datetime


@dataclass(frozen=True)
class StaleTaker:
    """Takes over stale fires for one owner, and abandons those that had ``max_attempts`` owners."""

    owner: str
    now: datetime
    lease_expires_at: datetime
    max_attempts: int
    chosen: Mapping[str, list[str] | None]

    def taken(self, reading: Run, once: Run, writing: Run, limit: int) -> tuple[FireClaim, ...]:
        """At most ``limit`` claims, the earliest expired lease first. While nothing is stale this only reads.

        Abandoned fires do not count towards the limit.
        """
        return claiming.claimed(self._stale(reading, limit), lambda row: self._settled(row, once, writing), limit)

    def _stale(self, reading: Run, limit: int) -> Iterator[StaleFire | CorruptData]:
        """Return stale fires, each once, read in portions, so that abandoned ones do not hide those behind them."""
        seen, told = set[str](), set[str]()
        statement, given = sql.STALE.of(self.chosen)
        while True:
            asked = {**given, "now": self.now, "limit": limit}
            found: list[StaleFire | CorruptData]
            found = reading(lambda unit, asked=asked: unit.readable(statement, asked).rows)  # type: ignore[misc]
            damaged = [row for row in found if isinstance(row, CorruptData) and str(row) not in told]
            unseen = [row for row in found if not isinstance(row, CorruptData) and row["id"] not in seen]
            yield from damaged
            yield from unseen
            seen.update(row["id"] for row in unseen)
            told.update(map(str, damaged))
            if len(found) < limit or not (unseen or damaged):
                return
            limit += len(damaged)  # these stay where they are: look behind them

    def _settled(self, row: StaleFire, once: Run, writing: Run) -> FireClaim | None:
        if row["attempts"] >= self.max_attempts:
            writing(lambda unit: self._abandon(unit, row))
            return None
        taken: FireClaim | None = once(lambda unit: self._take(unit, row))
        return taken

    def _take(self, unit: Unit, row: StaleFire) -> FireClaim | None:
        values = {"owner": self.owner, "lease_expires_at": self.lease_expires_at}
        taken = unit.row(sql.TAKE, {**self._of(row), **values})
        return None if taken is None else claim_of(taken, self.lease_expires_at - self.now)

    def _abandon(self, unit: Unit, row: StaleFire) -> None:
        error = _given_up(row)
        if unit.row(sql.ABANDON, {**self._of(row), "error": error, "at": self.now}) is not None:
            tell_schedule(unit, row["cron_name"], row["id"], error)

    def _of(self, row: StaleFire) -> LapsedClaim:
        return {"fire_id": row["id"], "epoch": row["epoch"], "now": self.now}


def _given_up(row: StaleFire) -> str:
    owners = "its owner" if row["attempts"] == 1 else f"{row['attempts']} owners"
    error = {
        "type": "abandoned",
        "message": f"{owners} let the lease run out, the last was {row['owner']!r}",
        "detail": {"owner": row["owner"], "attempts": row["attempts"]},
    }
    return codec.encode("error", error, max_bytes=_MOST.error_json)
