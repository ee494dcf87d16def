"""What `runs` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import checks
from lastlight_state.db.listing import MOST_VALUES
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.ids import new_id
from lastlight_state.settings import Limits
from lastlight_state.workflows import repo_conditions, words
from lastlight_state.workflows.arguments import Failure, PhaseEntry, Provenance, RunOptions, Trigger
from lastlight_state.workflows.repo_identity import normalised
from lastlight_state.workflows.run_statements import new_row

_ANY_SIZE = 2**40
POINTER_RULE = "store large text with executions.save_output and keep its execution id in scratch"


def new_run(
    limits: Limits,
    now: datetime,
    workflow_name: str,
    trigger: Trigger,
    phase: str,
    context: Any,
    scratch: dict[str, Any] | None,
    options: RunOptions,
) -> dict[str, Any]:
    """The parameters of a new run's row."""
    checks.group("options", options, RunOptions)
    patch = scratch_patch(scratch)
    return new_row(
        now,
        id=new_id() if options.id is None else checks.identifier("id", options.id, words.ID),
        workflow_name=checks.identifier("workflow_name", workflow_name, words.WORKFLOW_NAME),
        current_phase=checks.identifier("phase", phase, words.PHASE),
        status=checks.word("status", options.status, ("queued", "running")),
        context=None if context is None else codec.encode("context", context, max_bytes=limits.context),
        scratch=None if patch is None else encoded_scratch(patch, limits),
        parent_run_id=checks.optional("parent_run_id", options.parent_run_id, words.ID),
        max_restarts=checks.number("max_restarts", options.max_restarts, most=100),
        wake_at=None if options.not_before is None else aware_utc("not_before", options.not_before),
        deadline_at=None if options.deadline_at is None else aware_utc("deadline_at", options.deadline_at),
        **trigger_columns(trigger),
        **_provenance(options.provenance),
    )


def trigger_columns(trigger: Trigger) -> dict[str, Any]:
    """A trigger as columns of a run."""
    checks.group("trigger", trigger, Trigger)
    owner, repo = normalised(trigger.owner, trigger.repo)
    issue = trigger.issue_number
    return {
        "trigger_id": checks.identifier("trigger.id", trigger.id, words.TRIGGER_ID),
        "trigger_type": None
        if trigger.type is None
        else checks.word("trigger.type", trigger.type, words.TRIGGER_TYPES),
        "owner": owner,
        "repo": repo,
        "issue_number": None if issue is None else checks.number("trigger.issue_number", issue),
        "triggered_by": checks.optional("trigger.actor", trigger.actor, words.ACTOR),
        "trigger_actor_type": None
        if trigger.actor_type is None
        else checks.word("trigger.actor_type", trigger.actor_type, words.ACTOR_TYPES),
    }


def create_digest(row: Mapping[str, Any], context: Any) -> str:
    """The digest of what makes two ensures the same: trigger, repository, context and parent."""
    names = ("trigger_id", "trigger_type", "owner", "repo", "issue_number", "parent_run_id")
    return codec.digest([[row[name] for name in names], context])


def phase_entry(entry: PhaseEntry, now: datetime) -> dict[str, Any]:
    """An entry as it stands in the history, keys as the original wrote them."""
    checks.group("entry", entry, PhaseEntry)
    if type(entry.success) is not bool:
        raise InvalidValue("entry.success", "a truth value is needed")
    added: dict[str, Any] = {
        "phase": checks.identifier("entry.phase", entry.phase, words.PHASE),
        "timestamp": iso_text(now if entry.at is None else aware_utc("entry.at", entry.at)),
        "success": entry.success,
    }
    if entry.summary is not None:
        added["summary"] = checks.content("entry.summary", entry.summary, words.SUMMARY)
    return added


def scratch_patch(patch: dict[str, Any] | None) -> dict[str, Any] | None:
    """A patch of scratch: an object. Its values are judged with the merged document."""
    if patch is not None and type(patch) is not dict:
        raise InvalidValue("scratch", f"an object is needed, not {type(patch).__name__}")
    if not patch:
        return patch
    checked: dict[str, Any] = codec.decode(codec.encode_bytes("scratch", patch))  # numbers as both databases give them
    return checked


def merge(patch: dict[str, Any], remove: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A patch of scratch, and the keys to drop."""
    checked = scratch_patch(patch)
    if checked is None:
        raise InvalidValue("scratch", "an object is needed, not NoneType")
    return checked, tuple(checks.content("remove", key, _ANY_SIZE) for key in checks.several("remove", remove))


def encoded_scratch(scratch: dict[str, Any], limits: Limits, *, before: dict[str, Any] | None = None) -> str:
    """Scratch, its parts checked already, as text. Past the limit it is accepted only when smaller than ``before``."""
    data = codec.encode_sound(scratch)
    if len(data) > limits.scratch and not len(data) < len(codec.encode_sound(before)):
        largest = max(scratch, key=lambda key: len(codec.encode_sound(scratch[key])))
        hint = f"largest key {largest[:100]!r}; {POINTER_RULE}"
        raise PayloadTooLarge("scratch", limit=limits.scratch, actual=len(data), hint=hint)
    return data.decode()


def ending(failure: Failure | None, reason: str | None) -> dict[str, Any]:
    """How a run ends: its reason code, error text and details."""
    stop = None if failure is None else checks.group("failure", failure, Failure).stop_reason
    code = checks.optional("reason", reason if reason is not None else stop, words.REASON) or "run.finished"
    if failure is None:
        return {"reason": code, "error": None, "error_detail": None}
    return {"reason": code, **failure_columns(failure)}


def failure_columns(failure: Failure) -> dict[str, Any]:
    """A failure's text and details as columns."""
    detail = failure.detail
    return {
        "error": checks.content("failure.error", failure.error, words.ERROR),
        "error_detail": None if detail is None else codec.encode("failure.detail", detail, max_bytes=words.DETAIL),
    }


def operator(by: str, reason: str) -> dict[str, Any]:
    """Who acts, and why, in words."""
    return {
        "actor": checks.identifier("by", by, words.ACTOR),
        "detail": checks.content("reason", reason, words.SUMMARY),
    }


def list_filters(
    statuses: Sequence[str] | None, workflow_names: Sequence[str] | None, repo: str | None, since: datetime | None
) -> dict[str, Any]:
    """The filters of a list of runs, as its statements name them."""
    given: dict[str, Any] = {
        "statuses": None
        if statuses is None
        else [checks.word("statuses", status, words.RUN_STATUSES) for status in checks.several("statuses", statuses)],
        "workflow_names": None if workflow_names is None else several_workflows(workflow_names),
        "since": None if since is None else aware_utc("since", since),
    }
    if repo is not None:
        given |= repo_conditions.asked(repo)
    return given


def several_workflows(names: Sequence[str]) -> list[str]:
    """Names of workflows: as many as a statement compares with."""
    given = checks.several("workflow_names", names)
    if len(given) > MOST_VALUES:
        raise InvalidValue("workflow_names", f"{len(given)} values, more than the limit of {MOST_VALUES}")
    return [checks.identifier("workflow_names", name, words.WORKFLOW_NAME) for name in given]


def _provenance(provenance: Provenance) -> dict[str, Any]:
    given = vars(checks.group("provenance", provenance, Provenance))
    return {name: checks.optional(f"provenance.{name}", value, 2_000) for name, value in given.items()}
