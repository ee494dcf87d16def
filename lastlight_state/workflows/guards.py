"""Database triggers that refuse forbidden changes of runs, executions and questions by any program.

They check changes only: a row that already breaks a rule can still be read and copied.
"""

from __future__ import annotations

from lastlight_state.db.schema.guards import (
    DerivedRow,
    Guard,
    Key,
    append_only,
    declare,
    declare_derived,
    no_replacement,
    no_replacing_insert,
    no_update,
)

# The triggers that keep the lease of each running run in a row of `run_leases`, whatever program changes the run.
#
# The verbs, the original program and operators all write the run's own columns; its lease row follows at once. So a run
# that was ended or taken by plain SQL stays neither held nor lost. A heartbeat writes only the lease row.

#: The ``due_at`` of a run without a lease, which is due at once.
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
        # A take of a run that is not due yet keeps ``due_at``, and its place in the index: no lease ends before it.
        resets={
            "due_at": (
                "CASE WHEN run_leases.due_at > NEW.claimed_at AND run_leases.due_at <= excluded.due_at "
                "THEN run_leases.due_at ELSE excluded.due_at END"
            )
        },
    )
)


_IDENTITY = ("id", "workflow_name", "trigger_id", "run_key", "parent_run_id")


def _change_condition(columns: tuple[str, ...]) -> str:
    return " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in columns)


RESTART_BREAKER = declare(
    [
        Guard(
            "workflow_runs_restart_rises_by_one",
            "workflow_runs",
            "update",
            "restart_count may rise by 1, never above max_restarts, and not together with a new max_restarts",
            when="NEW.restart_count > OLD.restart_count AND (NEW.restart_count > OLD.restart_count + 1"
            " OR NEW.restart_count > NEW.max_restarts OR NEW.max_restarts <> OLD.max_restarts)",
            of=("restart_count",),
        ),
        Guard(
            "workflow_runs_restart_falls_by_release",
            "workflow_runs",
            "update",
            "restart_count may fall by 1 only, while the run is running and stays so",
            when="NEW.restart_count < OLD.restart_count AND (NEW.restart_count < OLD.restart_count - 1"
            " OR OLD.status <> 'running' OR NEW.status <> 'running')",
            of=("restart_count",),
        ),
    ]
)

TERMINAL_STAYS = declare(
    [
        Guard(
            "workflow_runs_succeeded_stays",
            "workflow_runs",
            "update",
            "a succeeded run never changes its status",
            when="OLD.status = 'succeeded' AND NEW.status <> 'succeeded'",
            of=("status",),
        ),
        Guard(
            "workflow_runs_ended_restarts_only",
            "workflow_runs",
            "update",
            "a failed or cancelled run leaves that status only for running or queued, with restart_count + 1",
            when="OLD.status IN ('failed', 'cancelled') AND NEW.status <> OLD.status"
            " AND (NEW.status NOT IN ('running', 'queued') OR NEW.restart_count <> OLD.restart_count + 1)",
            of=("status",),
        ),
    ]
)

IMMUTABLE = declare(
    [
        Guard(
            "workflow_runs_context_is_immutable",
            "workflow_runs",
            "update",
            "the context of a run never changes",
            when=_change_condition(("context",)),
            of=("context",),
        ),
        Guard(
            "workflow_runs_identity_is_immutable",
            "workflow_runs",
            "update",
            "the id, workflow, trigger, key and parent of a run never change",
            when=_change_condition(_IDENTITY),
            of=_IDENTITY,
        ),
        Guard(
            "workflow_runs_counters_never_fall",
            "workflow_runs",
            "update",
            "claim_epoch and transition_seq never fall",
            when="NEW.claim_epoch < OLD.claim_epoch OR NEW.transition_seq < OLD.transition_seq",
            of=("claim_epoch", "transition_seq"),
        ),
    ]
)

RESTART_LIMIT = declare(
    [
        Guard(
            f"workflow_runs_restart_limit_{event}",
            "workflow_runs",
            event,
            "max_restarts must be 0 to 100",
            when="NEW.max_restarts < 0 OR NEW.max_restarts > 100",
            of=("max_restarts",) if event == "update" else (),
        )
        for event in ("insert", "update")
    ]
)

APPEND_ONLY = declare(
    [
        *append_only("workflow_runs"),
        *no_replacement("workflow_runs"),
        *append_only("executions"),
        *no_replacement("executions", Key(("id",)), Key(("workflow_run_id", "node_id", "iteration", "attempt"))),
        *append_only("workflow_approvals"),
        *no_replacement(
            "workflow_approvals",
            Key(("id",)),
            Key(("workflow_run_id", "request_key"), among=("status", "'pending'")),
        ),
        *append_only("run_transitions"),
        *no_replacing_insert("run_transitions"),
        *no_update("run_transitions"),
        *append_only("run_nodes"),
        *no_replacement("run_nodes", Key(("run_id", "node_id", "iteration"))),
        *append_only("run_loops"),
        *no_replacement("run_loops", Key(("run_id", "loop_id"))),
        *append_only("human_requests"),
        *no_replacement("human_requests", Key(("id",))),
    ]
)

ONE_ANSWER = declare(
    [
        Guard(
            "workflow_approvals_one_answer",
            "workflow_approvals",
            "update",
            "the status of an approval that is not pending never changes",
            when="OLD.status <> 'pending' AND NEW.status <> OLD.status",
            of=("status",),
        )
    ]
)

CLOSED_STAYS = declare(
    [
        Guard(
            "human_requests_closed_stays",
            "human_requests",
            "update",
            "the status of a cancelled or expired request never changes",
            when="OLD.status IN ('cancelled', 'expired') AND NEW.status <> OLD.status",
            of=("status",),
        )
    ]
)
