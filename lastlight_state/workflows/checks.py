"""Checks of arguments that several repositories share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import MOST_VALUES
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import repos, words
from lastlight_state.workflows.arguments import Claim, Failure, NodeRef, PhaseEntry, Trigger
from lastlight_state.workflows.tables import NODES, RUNS, TRANSITIONS

_RUN, _NODE, _TRANSITION = limits_of(RUNS), limits_of(NODES), limits_of(TRANSITIONS)


class Operator(TypedDict):
    """An operator and the reason, as columns of a transition."""

    actor: str
    detail: str


class FailureColumns(TypedDict):
    """A failure's text and details; the details are JSON as text."""

    error: str
    error_detail: str | None


class TriggerColumns(TypedDict):
    """A trigger as columns of a run or of an execution."""

    trigger_id: str
    trigger_type: str | None
    owner: str | None
    repo: str | None
    issue_number: int | None
    triggered_by: str | None
    trigger_actor_type: str | None


class NodeColumns(TypedDict):
    """A node as columns."""

    node_id: str | None
    iteration: int


class FenceParameters(TypedDict):
    """A claim as the parameters of the fence."""

    presented_run: str | None
    presented_epoch: int | None


def operator(by: str, reason: str) -> Operator:
    """Check an operator's name and reason. Return them as columns for a row of `run_transitions`."""
    return {
        "actor": valid.identifier("by", by, _TRANSITION.actor),
        "detail": valid.content("reason", reason, _TRANSITION.detail),
    }


def phase_entry(entry: PhaseEntry, now: datetime) -> dict[str, Any]:
    """Return an entry of the phase history as a JSON object, with the keys that the original program uses."""
    valid.argument_group("entry", entry, PhaseEntry)
    added: dict[str, Any] = {
        "phase": valid.identifier("entry.phase", entry.phase, _RUN.current_phase),
        "timestamp": iso_text(now if entry.at is None else aware_utc("entry.at", entry.at)),
        "success": valid.flag("entry.success", entry.success),
    }
    if entry.summary is not None:
        added["summary"] = valid.content("entry.summary", entry.summary, words.SUMMARY)
    return added


def scratch_patch(patch: dict[str, Any] | None) -> dict[str, Any] | None:
    """Check a patch for a run's scratch: a dict of JSON values, or None.

    The size is checked later, when the patch is merged.
    """
    if patch is not None and type(patch) is not dict:
        raise InvalidValue("scratch", f"expected an object, got {type(patch).__name__}")
    if not patch:
        return patch
    checked: dict[str, Any] = codec.decode(codec.encode_bytes("scratch", patch))  # numbers as a read returns them
    return checked


def list_filters(
    statuses: Sequence[str] | None,
    workflow_names: Sequence[str] | None,
    repo: str | None,
    since: datetime | None,
    until: datetime | None = None,
) -> Row:
    """Check the filters of a list of runs. Return them by the names that the list's statements give them."""
    given: Row = {
        "statuses": None
        if statuses is None
        else [valid.word("statuses", status, words.RUN_STATUSES) for status in valid.several("statuses", statuses)],
        "workflow_names": None if workflow_names is None else several_workflows(workflow_names),
        "since": None if since is None else aware_utc("since", since),
        "until": None if until is None else aware_utc("until", until),
    }
    if repo is not None:
        given |= repos.repo_filter(repo)
    return given


def several_workflows(names: Sequence[str]) -> list[str]:
    """Check the names of workflows, at most 50, and return them."""
    given = valid.several("workflow_names", names)
    valid.at_most("workflow_names", given, MOST_VALUES)
    return [valid.identifier("workflow_names", name, _RUN.workflow_name) for name in given]


def some_workflows(names: Sequence[str] | None) -> list[str] | None:
    """Check the names of workflows, at most 50, and return them. None means all workflows."""
    return None if names is None else several_workflows(names)


def frozen_workflows(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Check the names of workflows and return them as a tuple. None means all workflows."""
    given = some_workflows(names)
    return None if given is None else tuple(given)


def some_versions(versions: Sequence[str] | None) -> list[str] | None:
    """Check the versions of an application, 1 to 50, and return them. None means all versions."""
    if versions is None:
        return None
    given = valid.several("app_versions", versions)
    valid.at_most("app_versions", given, MOST_VALUES)
    if not given:
        raise InvalidValue("app_versions", "expected at least one version, or None for all")
    return [valid.identifier("app_versions", version, _RUN.app_version) for version in given]


def frozen_versions(versions: Sequence[str] | None) -> tuple[str, ...] | None:
    """Check the versions of an application and return them as a tuple. None means all versions."""
    given = some_versions(versions)
    return None if given is None else tuple(given)


def no_success(outcome: str | None, failure: Failure | None, *, instead: str = "stop_reason") -> None:
    """Raise `InvalidValue` for a failure given with the outcome ``succeeded``.

    ``instead`` is the argument that the error recommends for a reason.
    """
    if outcome == "succeeded" and failure is not None:
        raise InvalidValue("failure", f"must be None for a success; {instead} says why it stopped")


def failure_columns(failure: Failure) -> FailureColumns:
    """Return a failure's text and details as columns; the details are JSON text."""
    detail = failure.detail
    return {
        "error": valid.content("failure.error", failure.error, _RUN.error),
        "error_detail": None if detail is None else codec.encode("failure.detail", detail, max_bytes=_RUN.error_detail),
    }


def trigger_columns(trigger: Trigger) -> TriggerColumns:
    """Return a trigger as columns of a run."""
    valid.argument_group("trigger", trigger, Trigger)
    owner, repo = repos.normalise_repo(trigger.owner, trigger.repo)
    issue = trigger.issue_number
    return {
        "trigger_id": valid.identifier("trigger.id", trigger.id, _RUN.trigger_id),
        "trigger_type": None if trigger.type is None else valid.word("trigger.type", trigger.type, words.TRIGGER_TYPES),
        "owner": owner,
        "repo": repo,
        "issue_number": None if issue is None else valid.number("trigger.issue_number", issue),
        "triggered_by": valid.optional("trigger.actor", trigger.actor, _RUN.triggered_by),
        "trigger_actor_type": None
        if trigger.actor_type is None
        else valid.word("trigger.actor_type", trigger.actor_type, words.ACTOR_TYPES),
    }


def node_columns(node: NodeRef | None, where: str = "node") -> NodeColumns:
    """Return a node's id and iteration as columns: None and 0 without a node."""
    if node is None:
        return {"node_id": None, "iteration": 0}
    valid.argument_group(where, node, NodeRef)
    return {
        "node_id": valid.identifier(f"{where}.node_id", node.node_id, _NODE.node_id),
        "iteration": valid.number(f"{where}.iteration", node.iteration),
    }


def fence_parameters(claim: Claim | None) -> FenceParameters:
    """Return a claim's run and epoch as parameters of the fence, the check that a write comes from the run's holder.

    Without a claim both are None.
    """
    if claim is None:
        return {"presented_run": None, "presented_epoch": None}
    valid.argument_group("claim", claim, Claim)
    return {"presented_run": claim.run_id, "presented_epoch": claim.epoch}
