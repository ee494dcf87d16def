"""Take, renew and release runs, and end runs that must not be continued.

One conditional UPDATE decides; if it changes nothing, a second look at the locked row gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from lastlight_state import codec
from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, Conflict, CorruptData, LostRace
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.claims import checks, lists, statements as sql
from lastlight_state.workflows.claims.checks import Holding
from lastlight_state.workflows.claims.lists import Candidate, MomentParameters
from lastlight_state.workflows.claims.statements import FreeRun, JudgedRun
from lastlight_state.workflows.shared import run_rows, transitions
from lastlight_state.workflows.shared.claims import ClaimedRun, RenewedRun

#: The number of spare candidates to read, because other processes may be taking the first ones.
_SPARE = 50
#: The most candidates that one statement reads.
_MOST = 500


class Attempt(Holding, MomentParameters):
    """The parameters of a take."""

    expected_epoch: int | None


class FreeAttempt(Holding):
    """The parameters of a take of one run that nobody may hold."""

    run_id: str
    expected_epoch: int | None


class OneAttempt(FreeAttempt, MomentParameters):
    """The parameters of a take of one run that somebody may hold."""


class GivingUp(MomentParameters):
    """The parameters of the end of one run that nobody is to go on with."""

    run_id: str


def claim_of(row: RenewedRun | ClaimedRun, lease: timedelta, left_in_flight: int = 0) -> Claim:
    """Return the claim of a row that a statement of claims returned."""
    return Claim.of(
        {
            "run_id": row.id,
            "owner": row.claim_owner,
            "epoch": row.claim_epoch,
            "lease": lease,
            "taken_at": row.claimed_at,
            "lease_expires_at": row.lease_expires_at,
            "restart_count": row.restart_count,
            "cancel_requested": row.cancel_requested_at is not None,
            "left_in_flight": left_in_flight,
        }
    )


def transfer_facts(claim: Claim) -> Row:
    """Return what the transition of a hand-over says."""
    return {
        "reason": "claim.transferred",
        "actor": claim.owner,
        "detail": None,
        "source": "supervisor",
        "to_status": "running",
        "presented_epoch": claim.epoch,
    }


#: A run that was taken, and how many executions an earlier holder left in flight.
TakenClaim: TypeAlias = tuple[ClaimedRun, int]


def take(unit: Unit, values: OneAttempt) -> TakenClaim:
    """Take one run of any kind. Raises `NotFound`, `LostRace`, `Conflict` ``run_status`` or ``restart_limit``."""
    locked = unit.row(sql.LOCK, values)
    if locked is None:
        raise valid.not_found("workflow_run", values["run_id"])
    taken = _take_locked(unit, [locked], values)
    if taken:
        return taken[0]
    again = unit.row(sql.RETAKE, values)
    if again is None:
        raise _refusal(unit.row(sql.LOCK, values) or locked, values)  # the lease may have been renewed meanwhile
    return again, 0


def release(unit: Unit, claim: Claim, at: datetime, retry_at: datetime | None) -> None:
    """Put a run back as it was before it was taken. Raises `NotFound`, `ClaimLost`."""
    row = run_rows.lock(unit, claim.run_id, sql.LOCK_HELD)
    run_rows.check(row, claim)
    before = row.previous_status or "running"
    how = transitions.GIVE_BACK if before == row.status else transitions.RELEASE
    transitions.move(
        unit, how, row, before, reason="claim.released", at=at, source="supervisor",
        actor=claim.owner, presented_epoch=claim.epoch, retry_at=retry_at,
    )  # fmt: skip


def give_up(unit: Unit, listeners: Listeners, values: GivingUp, reason: str) -> bool:
    """End a run that nobody holds and that must not be continued. Returns true if the run was ended.

    A run with a cancel request is cancelled; an abandoned run at its restart limit fails.
    """
    unit.row(sql.LOCK, values)
    unit.row(sql.LOCK_LEASE, values)
    row = unit.row(sql.LOCK, values)  # as it is while both are locked
    if row is None or row.kind not in ("abandoned", "offered"):
        return False
    if row.cancel_requested_at is not None:
        transitions.end(
            unit, listeners, row, "cancelled", at=values["at"], reason="run.cancelled", detail="nobody held it",
            source="supervisor",
        )  # fmt: skip
        return True
    if row.kind == "offered" or row.restart_count < row.max_restarts:
        return False
    error = f"gave up after {row.restart_count} restarts"
    transitions.end(
        unit, listeners, row, "failed", error=error, at=values["at"], reason="claim.gave_up", detail=reason,
        source="supervisor",
    )  # fmt: skip
    return True


def take_next(unit: Unit, values: Attempt, given: lists.Given, limit: int) -> list[TakenClaim]:
    """Take the runs of these workflows and versions, or of all, that were silent for longest.

    Skips runs that others are locking and runs that cannot be read.
    """
    size = min(limit + _SPARE, _MOST)
    taken: list[TakenClaim] = []
    last = None
    while len(taken) < limit:
        found = lists.candidates(unit, values, given, last, size)
        taken += _take_free(unit, found.rows, values, limit - len(taken))
        last = found.last
        if last is None:
            break
    return taken


def _take_free(
    unit: Unit, candidates: Sequence[Candidate | CorruptData], values: Attempt, limit: int
) -> list[TakenClaim]:
    """Take the first ``limit`` of these runs that nobody is locking. Those that cannot be read stay as they are."""
    taken: list[TakenClaim] = []
    left = [run_id for run_id, _ in unit.without_damaged(candidates)]
    while left and len(taken) < limit:
        statement, ids = sql.LOCK_FREE.of(left)
        asked = limit - len(taken)
        locked = unit.rows_or_errors(statement, {**values, **ids, "limit": asked}).rows
        taken += _take_locked(unit, unit.without_damaged(locked), values)
        if len(locked) < asked:
            break
        tried = {row.key if isinstance(row, CorruptData) else row.id for row in locked}
        left = [run_id for run_id in left if run_id not in tried]
    return taken


def _take_locked(unit: Unit, locked: Sequence[JudgedRun | FreeRun], values: Attempt) -> list[TakenClaim]:
    """Take the locked runs that may be taken, in their order, and record the takes."""
    if not locked:
        return []
    statement, ids = sql.TAKE.of([row.id for row in locked])
    taken = {row.id: row for row in unit.rows(statement, {**values, **ids})}
    before = {row.id: row.transition_seq for row in locked}
    changed = [run_id for run_id, row in taken.items() if row.transition_seq != before[run_id]]
    transitions.record_takes(unit, changed, values["at"])
    left = _left_in_flight(unit, list(taken))
    return [(taken[run_id], left.get(run_id, 0)) for run_id in before if run_id in taken]


def _left_in_flight(unit: Unit, run_ids: Sequence[str]) -> dict[str, int]:
    """Return by run id how many executions the earlier holders of these runs left in flight."""
    if not run_ids:
        return {}
    statement, values = sql.LEFT_IN_FLIGHT.of(run_ids)
    return dict(unit.rows(statement, values))


def _refusal(row: JudgedRun, values: OneAttempt) -> Conflict:
    """Return the error for a locked run that cannot be taken."""
    expected = values["expected_epoch"]
    if row.status != "running":
        return run_rows.wrong_status(row.id, row.status, ("running",))
    if row.kind == "abandoned" and expected in (None, row.claim_epoch):
        return run_rows.restart_limit(row)
    return LostRace(
        f"run {row.id!r} cannot be taken: held by {row.claim_owner!r} at epoch {row.claim_epoch}",
        held_by=row.claim_owner,
        lease_expires_at=row.lease_expires_at,
        epoch=row.claim_epoch,
        wake_at=row.wake_at,
    )


def together(held: Mapping[str, Claim], now: datetime) -> Row:
    """Return the parameters of the statement that renews these claims from now on."""
    leases = {claim.lease for claim in held.values()}
    renewals = {lease: _renewal_texts(checks.renewal(now, lease)) for lease in leases}
    presented = [{"run_id": claim.run_id, "epoch": claim.epoch, **renewals[claim.lease]} for claim in held.values()]
    return {"at": now, "claims": _document(presented)}


def _renewal_texts(renewal: Mapping[str, Any]) -> dict[str, str]:
    return {name: iso_text(at) for name, at in renewal.items()}


def why_lost(unit: Unit, lost: Mapping[str, Claim]) -> dict[str, ClaimLost]:
    """Return by run id the errors for claims that could not be renewed. Leaves out runs that do not exist."""
    found = unit.rows(sql.LOOK, {"claims": _document([{"run_id": run_id} for run_id in lost])})
    return {row.id: run_rows.claim_lost(row, lost[row.id].epoch) for row in found}


def missing_run_error(claim: Claim) -> ClaimLost:
    """Return the error for a claim on a run that does not exist."""
    return ClaimLost(claim.run_id, presented=claim.epoch, current_epoch=0, held_by=None, status="missing")


def _document(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return claims as JSON text for a single parameter. Checks only the ids, which come from the caller."""
    codec.encode_bytes("claims", [claim["run_id"] for claim in claims])
    return codec.encode_sound(claims).decode()
