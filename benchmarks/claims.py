"""Claims: take, renew one, renew a hundred in one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state.workflows import Claim

_COLUMNS = "id, claim_owner, claim_epoch, claimed_at, lease_expires_at, restart_count, cancel_requested_at"
_TAKE = (
    "UPDATE workflow_runs SET claim_owner = ?, claim_epoch = claim_epoch + 1, claimed_at = ?, heartbeat_at = ?, "
    "lease_expires_at = ?, previous_owner = claim_owner, previous_heartbeat_at = heartbeat_at, "
    "previous_lease_expires_at = lease_expires_at, previous_status = status, previous_restart_count = restart_count "
    "WHERE id = ? AND status = 'running' AND claim_owner IS NULL AND (lease_expires_at IS NULL "
    f"OR lease_expires_at >= ?) AND (wake_at IS NULL OR wake_at <= ?) RETURNING {_COLUMNS}"
)
_BEATEN = (
    "run_id, epoch, (SELECT claim_owner FROM workflow_runs WHERE id = run_id), heartbeat_at, lease_expires_at, "
    "(SELECT cancel_requested_at FROM workflow_runs WHERE id = run_id)"
)
_BEAT = (
    "UPDATE run_leases SET heartbeat_at = {latest}(heartbeat_at, ?), lease_expires_at = {latest}(lease_expires_at, ?) "
    f"WHERE run_id = ? AND epoch = ? RETURNING {_BEATEN}"
)
_PRESENTED = {
    "sqlite": "(SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.held') AS held "
    "FROM json_each(?)) AS presented",
    "postgresql": "jsonb_to_recordset(CAST(? AS JSONB)) AS presented(id TEXT, held BIGINT)",
}
_BEAT_MANY = (
    "UPDATE run_leases SET heartbeat_at = {latest}(heartbeat_at, ?), lease_expires_at = {latest}(lease_expires_at, ?) "
    "FROM {presented} WHERE run_id = presented.id AND epoch = presented.held "
    f"RETURNING {_BEATEN}"
)
_LEASE = timedelta(seconds=30)
_CALLS = 100
_MANY = 100


def results(side: Side) -> Iterator[Result]:
    """Take new runs, then renew them."""
    ours, theirs = (_runs(side, 12 * _CALLS) for _ in range(2))
    claims = side.store.workflows.claims
    held: list[Claim] = []
    yield compare(
        "take a run",
        side.name,
        lambda: held.append(claims.take(ours.pop(), owner="worker-1")),
        _alone(side, _TAKE, lambda: _taking(side, theirs.pop())),
        goal=goal("take a run", side.name),
        calls=_CALLS,
    )
    words = {"latest": "max" if side.name == "sqlite" else "greatest", "presented": _PRESENTED[side.name]}
    one = held[0]
    yield compare(
        "heartbeat",
        side.name,
        lambda: claims.heartbeat(one),
        _alone(side, _BEAT.format(**words), lambda: (*_renewal(side), one.run_id, one.epoch)),
        goal=goal("heartbeat", side.name),
    )
    many = held[:_MANY]
    yield compare(
        "heartbeat of 100 runs",
        side.name,
        lambda: claims.heartbeat_many(many),
        _alone(side, _BEAT_MANY.format(**words), lambda: (*_renewal(side), _document(many))),
        goal=goal("heartbeat of 100 runs", side.name),
        calls=30,
    )


def _runs(side: Side, count: int) -> list[str]:
    runs = side.store.workflows.runs
    return [runs.create("triage", trigger=TRIGGER, phase="start").id for _ in range(count)]


def _alone(side: Side, text: str, values: Callable[[], tuple[Any, ...]]) -> Callable[[], object]:
    """One statement as one would run it by hand: in autocommit, its rows read and its times made values."""
    sql, execute = side.sql(text), side.driver.execute

    def run() -> object:
        rows = execute(sql, values()).fetchall()
        if side.name == "sqlite":  # psycopg gives times as values by itself
            return [(datetime.fromisoformat(row[3]), datetime.fromisoformat(row[4])) for row in rows]
        return rows

    return run


def _taking(side: Side, run_id: str) -> tuple[Any, ...]:
    now, until = _renewal(side)
    return ("worker-1", now, now, until, run_id, now, now)


def _renewal(side: Side) -> tuple[Any, Any]:
    """Now, and the end of a lease that begins now, as this database's driver stores them."""
    now = datetime.now(UTC)
    until = now + _LEASE
    return (_text(now), _text(until)) if side.name == "sqlite" else (now, until)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def _document(claims: list[Claim]) -> str:
    return orjson.dumps([{"id": claim.run_id, "held": claim.epoch} for claim in claims]).decode()
