"""The triggers that keep the lease of each running run in a row of its own, whoever changes the run.

The verbs, the original program and operators all write the run's own columns; the row beside it follows at once. So a
run that was ended, or taken, by plain SQL stays neither held nor lost. A heartbeat writes the row beside it alone.
"""

from __future__ import annotations

from lastlight_state.db.reactions import DerivedRow, declare_derived

#: When somebody has to look at a run without a lease: at once.
AT_ONCE = "1970-01-01T00:00:00.000Z"

LEASE = declare_derived(
    DerivedRow(
        "workflow_runs_lease",
        "workflow_runs",
        "run_leases",
        key="id",
        values={
            "run_id": "NEW.id",
            "workflow_name": "NEW.workflow_name",
            "epoch": "CASE WHEN NEW.claim_owner IS NOT NULL THEN NEW.claim_epoch END",
            "heartbeat_at": "NEW.heartbeat_at",
            "lease_expires_at": "NEW.lease_expires_at",
            "due_at": f"coalesce(NEW.lease_expires_at, '{AT_ONCE}')",
        },
        by="status",
        among="{row}status = 'running' AND {row}id IS NOT NULL",
        of=("status", "claim_owner", "claim_epoch", "lease_expires_at"),
        says="a running run has a row in `run_leases`, and no other run has one",
        functions=("lastlight_put_lease", "lastlight_drop_lease"),
        # A take of a run that is not due yet leaves the place in the index: no lease ends before it.
        resets={
            "due_at": (
                "CASE WHEN run_leases.due_at > NEW.claimed_at AND run_leases.due_at <= excluded.due_at "
                "THEN run_leases.due_at ELSE excluded.due_at END"
            )
        },
    )
)
