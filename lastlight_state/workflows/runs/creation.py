"""How runs are created, once per id or key; and why one was not."""

from __future__ import annotations

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, NotFound, StateError
from lastlight_state.workflows.kernel import rows
from lastlight_state.workflows.records import EnsuredRun, WorkflowRun
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.runs.statements import NewRun


def find_or_insert(unit: Unit, row: NewRun) -> EnsuredRun | None:
    """Return the run with the key of ``row``, inserted if it is missing. None if the statement inserted nothing."""
    unit.named_lock(f"run_key:{row['workflow_name']}:{row['run_key']}")
    found = find(unit, row)
    if found is not None:
        return found
    made = insert(unit, row)
    return None if made is None else EnsuredRun.of({"run": made, "created": True})


def find(unit: Unit, row: NewRun) -> EnsuredRun | None:
    """Return the run with the key of ``row``, or None.

    Raises `AlreadyExists` if it was created with another content.
    """
    found = unit.row(sql.FIND_KEY, row)
    if found is None:
        return None
    if found["create_digest"] != row["create_digest"]:
        raise AlreadyExists(
            "workflow_run", found["id"], problem="has this key with another content", run_key=row["run_key"]
        )
    del found["create_digest"]
    return EnsuredRun.of({"run": WorkflowRun.of_detail(found), "created": False})


def insert(unit: Unit, row: NewRun) -> WorkflowRun | None:
    """Insert a run; returns it as a later read would. None if the statement inserted nothing."""
    stated = {name: value for name, value in row.items() if value is not None}
    made = unit.chain(sql.create(frozenset(stated)), stated | sql.first_transition(row))
    return None if made is None else WorkflowRun.of(made)


def refusal(unit: Unit, row: NewRun) -> StateError:
    """Return the error for a run that the statement did not insert."""
    parent = row["parent_run_id"]
    if parent is None or unit.row(sql.IS_DISABLED, row) is not None:
        return disabled(row["workflow_name"])
    if unit.row(rows.EXISTS, {"run_id": parent}) is None:
        return NotFound("workflow_run", parent, reason="given as parent")
    return Conflict(
        f"run {parent!r} is cancelled or was asked to be, and cannot get children",
        code="parent_cancelled",
        parent_run_id=parent,
    )


def disabled(workflow_name: str) -> Conflict:
    """The error for a workflow that is switched off."""
    return Conflict(
        f"workflow {workflow_name!r} is switched off", code="workflow_disabled", workflow_name=workflow_name
    )
