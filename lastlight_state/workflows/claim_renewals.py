"""How claims are renewed, many at once, and why one that is not has been lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ClaimLost
from lastlight_state.workflows import claim_checks, run_rows
from lastlight_state.workflows import claim_statements as sql
from lastlight_state.workflows.arguments import Claim


def together(held: Mapping[str, Claim], now: datetime) -> dict[str, Any]:
    """The parameters of the statement that renews these claims, by run, from now."""
    leases = {claim.lease for claim in held.values()}
    ends = {lease: iso_text(claim_checks.lease_end(now, lease)) for lease in leases}
    presented = [
        {"run_id": claim.run_id, "epoch": claim.epoch, "lease_expires_at": ends[claim.lease]} for claim in held.values()
    ]
    return {"at": now, "claims": _document(presented)}


def why_lost(unit: Unit, lost: Mapping[str, Claim]) -> dict[str, ClaimLost]:
    """The errors for claims that could not be renewed, by run; none for a run that is not there."""
    rows = unit.rows(sql.LOOK, {"claims": _document([{"run_id": run_id} for run_id in lost])})
    return {row["id"]: run_rows.claim_lost(row, lost[row["id"]].epoch) for row in rows}


def missing(claim: Claim) -> ClaimLost:
    """The error for a claim on a run that is not there."""
    return ClaimLost(claim.run_id, presented=claim.epoch, current_epoch=0, held_by=None, status="missing")


def _document(claims: list[dict[str, Any]]) -> str:
    """Claims as the one parameter of a statement."""
    return codec.encode_bytes("claims", claims).decode()
