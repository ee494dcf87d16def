"""Converts rows of the first original system: how each value is checked, and how a stored row may change."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.runs import TERMINAL_TOPIC
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Check, ExtraFields
from lastlight_state.maintenance.imports.pieces import ImportTarget
from lastlight_state.maintenance.imports.row_pieces import Growth, Row, change
from lastlight_state.messaging import models as chat_words, models as chats
from lastlight_state.schedules import models as fires
from lastlight_state.schedules.models import FIRES, OVERRIDES as CRON_OVERRIDES
from lastlight_state.settings import Limits
from lastlight_state.workflows import repos, words
from lastlight_state.workflows.shared import transitions
from lastlight_state.workflows.shared.run_rows import StatusOfRun
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, OVERRIDES, RUNS

# How an imported run follows its source: its status changes by the same transitions as that of any run.

_MOVES = {"running": transitions.RESUME, "paused": transitions.PAUSE, "queued": transitions.REQUEUE}
#: The columns that a change to a status sets, by status.
_SETS: dict[str, tuple[str, ...]] = {
    "running": (),
    "paused": ("pause_reason", "wake_at", "waiting_for", "correlation_id"),
    "queued": ("wake_at",),
    **dict.fromkeys(words.TERMINAL, ("error", "error_detail")),
}


def is_open(stored: Row, row: Row) -> bool:
    """True if a run is live, and was neither claimed nor continued in the store since its import."""
    begun = stored["phase_history"]
    untouched = stored["claim_epoch"] == 0 and stored["updated_at"] <= row["updated_at"]
    return stored["status"] not in words.TERMINAL and untouched and row["phase_history"][: len(begun)] == begun


def move(view: Unit, into: ImportTarget, growth: Growth, stored: Row, row: Row, names: list[str]) -> None:
    """Update these columns of a run. A change of its status is recorded as a transition."""
    change(view, growth, RUNS, stored, row, [name for name in names if name != "status"])
    if "status" not in names:
        return
    to = row["status"]
    ended = to in words.TERMINAL
    sets: dict[str, Any] = {name: row.get(name) for name in _SETS[to]}
    at = (row["finished_at"] if ended else None) or row["updated_at"]
    how = transitions.END if ended else _MOVES[to]
    reason = row.get("status_reason") or "run.imported"
    here = StatusOfRun(stored["id"], stored["status"])
    moved = transitions.move(view, how, here, to, reason=reason, at=at, source="system", **sets)
    if ended:
        view.after_commit(lambda: into.listeners.notify(TERMINAL_TOPIC, moved))


#: The tables, and the columns that each table has in every version.
TABLES = {
    "executions": "id trigger_type trigger_id skill repo issue_number started_at finished_at success error",
    "workflow_runs": "id workflow_name trigger_id current_phase phase_history status context started_at updated_at",
    "workflow_approvals": "id workflow_run_id gate summary status responded_by response responded_at created_at",
    "cron_overrides": "name enabled schedule updated_at updated_by",
    "workflow_overrides": "name enabled updated_at updated_by",
    "cron_runs": "id cron_name source started_at status",
    "messaging_sessions": "id platform channel_id thread_id user_id created_at last_activity_at active",
    "messaging_messages": "id session_id role content timestamp",
}
_GATE, _EXECUTION, _FIRE = limits_of(APPROVALS), limits_of(EXECUTIONS), limits_of(FIRES)
#: The check of a text that is neither a name nor indexed.
_SAID = cells.text(1024)
_ACTOR = cells.name(limits_of(RUNS).triggered_by)
_COUNTS = (
    *("turns", "duration_ms", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("output_tokens", "api_duration_ms", "issue_number"),
)
_REPO = {"owner": _SAID, "repo": _SAID}
_ACTORS = {"triggered_by": _ACTOR, "trigger_actor_type": _ACTOR}


_OVERRIDE: dict[str, Check] = {
    **cells.names(OVERRIDES, "name"),
    "enabled": cells.flag,
    "updated_at": cells.time,
    "updated_by": _SAID,
}
#: The checks of the columns by table, except columns whose size limits are settings.
_CHECKS: dict[str, dict[str, Check]] = {
    "workflow_runs": {
        **cells.names(RUNS, "id", "workflow_name", "trigger_id", "current_phase"),
        "status": partial(valid.word, vocabulary=words.RUN_STATUSES),
        "node_statuses": cells.json(limits_of(RUNS).node_statuses, dict),
        "restart_count": valid.number,
        **dict.fromkeys(("trace_id", "span_id"), cells.name(256)),
        "issue_number": cells.whole,
        "started_at": cells.time,
        "updated_at": cells.time,
        "finished_at": cells.time,
        **_REPO,
        **_ACTORS,
    },
    "executions": {
        "trigger_type": _ACTOR,
        **cells.names(EXECUTIONS, "id", "trigger_id", "skill", "workflow_run_id"),
        "started_at": cells.time,
        "finished_at": cells.time,
        "success": cells.flag,
        "error": cells.text(_EXECUTION.error),
        "session_id": valid.session_id,
        "cost_usd": cells.real,
        "stop_reason": _SAID,
        **dict.fromkeys(_COUNTS, cells.whole),
        **_REPO,
        **_ACTORS,
    },
    "workflow_approvals": {
        **cells.names(APPROVALS, "id", "workflow_run_id", "gate", "artifact"),
        "summary": cells.text(_GATE.summary),
        "status": partial(valid.word, vocabulary=words.APPROVAL_STATUSES),
        "kind": partial(valid.word, vocabulary=words.APPROVAL_KINDS),
        "requested_by": _SAID,
        "responded_by": _SAID,
        "response": cells.text(_GATE.response),
        "responded_at": cells.time,
        "created_at": cells.time,
    },
    "cron_overrides": {"schedule": _SAID, **_OVERRIDE},
    "workflow_overrides": _OVERRIDE,
    "cron_fires": {
        **cells.names(FIRES, "id", "cron_name", "target"),
        "source": partial(valid.word, vocabulary=fires.FIRE_SOURCES),
        "actor": cells.text(_FIRE.actor),
        "target_kind": partial(valid.word, vocabulary=fires.TARGET_KINDS),
        "status": partial(valid.word, vocabulary=fires.FIRE_STATUSES),
        "started_at": cells.time,
        "finished_at": cells.time,
        **dict.fromkeys(("eligible", "scanned", "discovered", "dispatched", "failures"), valid.number),
        "error_json": cells.error(_FIRE.error_json - 1_024),
    },
    "messaging_sessions": {
        "id": valid.session_id,
        **cells.names(chats.SESSIONS, "platform", "channel_id", "user_id"),
        "thread_id": cells.text(limits_of(chats.SESSIONS).thread_id),
        "agent_session_id": valid.session_id,
        "created_at": cells.time,
        "last_activity_at": cells.time,
        "active": cells.flag,
    },
    "messaging_messages": {
        "id": cells.whole,
        "session_id": valid.session_id,
        "role": partial(valid.word, vocabulary=chat_words.ROLES),
        "timestamp": cells.time,
        **cells.names(chats.MESSAGES, "platform_message_id"),
    },
}


@lru_cache(maxsize=8)
def _checks(limits: Limits) -> dict[str, dict[str, Check]]:
    """Return, for each table, the functions that check its columns."""
    sized: dict[str, dict[str, Check]] = {
        "workflow_runs": {
            "phase_history": cells.json(limits.phase_history, list),
            "context": cells.json(limits.context),
            "scratch": cells.json(limits.scratch, dict),
        },
        "executions": {"output_text": cells.text(limits.output_text)},
        "messaging_messages": {"content": cells.text(limits.message_content)},
    }
    return {table: {**checks, **sized.get(table, {})} for table, checks in _CHECKS.items()}


def run(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert a run. Its phases are counted, and a failed run gets the error from its context.

    Unknown columns are put into its context.
    """
    row = _split_repo("workflow_runs", _checked_columns(RUNS, limits, found, aside))
    ended = row["status"] in ("failed", "cancelled")
    context = row["context"]
    told = context.get("error") if ended and isinstance(context, dict) else None
    row["error"] = told if isinstance(told, str) else None
    row["phase_count"] = len(row["phase_history"])
    row["queued_at"] = row["started_at"] if row["status"] == "queued" else None
    where = f"workflow_runs {row['id']:.80}.context"
    return {**row, "context": aside.add_to(where, context, limits.context)}


def execution(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert an execution. Unknown columns are put into its details."""
    row = _split_repo("executions", _checked_columns(EXECUTIONS, limits, found, aside))
    where, others = f"executions {row['id']:.80}.details", aside.others
    aside.others = {}
    codec.encode(where, others, max_bytes=_EXECUTION.details)
    return {**row, "details": aside.add_to(where, others, _EXECUTION.details) or None}


def _split_repo(table: str, row: cells.Row) -> cells.Row:
    """Return the row with the repository's owner and name in separate columns."""
    try:
        owner, repo = repos.normalise_repo(row.get("owner"), row.get("repo"))
    except InvalidValue as error:
        raise InvalidValue(f"{table} {row['id']:.80}.{error.where}", error.problem) from None
    return {**row, "owner": owner, "repo": repo}


def fire(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert a fire of a cron.

    A fire that was running becomes abandoned, because the source does not state its end.
    """
    workflow, handler = found.get("workflow"), found.get("handler")
    named = {
        **found,
        "target_kind": "workflow" if workflow is not None else "handler" if handler is not None else None,
        "target": handler if workflow is None else workflow,
        "eligible": found.get("repos_eligible"),
        "scanned": found.get("repos_scanned"),
        "error_json": found.get("error"),
    }
    both = workflow is not None and handler is not None
    given = {name: value for name, value in named.items() if name not in _RENAMED or (both and name == "handler")}
    row = _checked_columns(FIRES, limits, given, aside, name="cron_fires")
    payload = aside.add_to(f"cron_runs {row['id']:.80}", None, _FIRE.payload)
    said = {} if payload is None else {"payload": payload}
    return {**row, **said, "status": "abandoned"} if row["status"] == "running" else {**row, **said}


def approval(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert a gate. Unknown columns are put into its action."""
    row = _checked_columns(APPROVALS, limits, found, aside)
    return {
        **row,
        "action": aside.add_to(f"workflow_approvals {row['id']:.80}.action", None, _GATE.action),
    }


def override(table: sa.Table, limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert an operator's override. Unknown columns are only counted, and a refused value fails the unit."""
    aside.lenient = False
    row = _checked_columns(table, limits, found, aside)
    aside.leave()
    return row


def chat(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert a chat session. Its messages are counted again later, when texts kept for them join its metadata."""
    others = {name: value for name, value in found.items() if name != "message_count"}
    return _checked_columns(chats.SESSIONS, limits, others, aside)


def message(limits: Limits, found: cells.Row, aside: ExtraFields) -> cells.Row:
    """Convert a message of a chat session. Refused texts go to the session's ``aside``. Unknown columns are counted."""
    own = ExtraFields(aside.noticed, lenient=aside.lenient)
    row = _checked_columns(chats.MESSAGES, limits, found, own)
    own.leave()
    aside.texts |= {f"message {row['id']}.{name}": text for name, text in own.texts.items()}
    aside.escaped += [f"message {row['id']}.{name}" for name in own.escaped]
    return row


def _checked_columns(
    table: sa.Table, limits: Limits, found: cells.Row, aside: ExtraFields, name: str | None = None
) -> cells.Row:
    """Return the columns that have a check. Other columns are collected in ``aside``."""
    checks = _checks(limits)[name or table.name]
    aside.keep(found, checks.keys())
    return cells.row_of(table, found, checks, aside)


#: The columns of a fire in the source that have another name here.
_RENAMED = ("workflow", "handler", "repos_eligible", "repos_scanned", "error")
#: The functions that convert a row, by table.
MADE: dict[str, Callable[[Limits, cells.Row, ExtraFields], cells.Row]] = {
    "workflow_runs": run,
    "executions": execution,
    "workflow_approvals": approval,
    "cron_overrides": partial(override, CRON_OVERRIDES),
    "workflow_overrides": partial(override, OVERRIDES),
    "cron_fires": fire,
    "messaging_sessions": chat,
    "messaging_messages": message,
}


_WHOSE = frozenset({"owner", "repo", "triggered_by", "trigger_actor_type"})


def _override_growth() -> Growth:
    return Growth(lambda stored, row: stored["updated_at"] < row["updated_at"], frozenset(), ("updated_at",))


#: The rules by which stored rows follow their source. A run's context stays, because the source adds the error to it.
#: Restarts are counted separately here.
GROWTHS = {
    "workflow_runs": Growth(
        is_open,
        frozenset({"workflow_name", "trigger_id", "issue_number", "started_at"}),
        ("status", "updated_at", "claim_epoch"),
        frozenset({"context", "restart_count", "queued_at"}) | _WHOSE,
        move,
    ),
    "executions": Growth(
        lambda stored, _: stored["finished_at"] is None and stored["success"] is None,
        frozenset({"trigger_type", "trigger_id", "skill", "started_at", "workflow_run_id"}),
        ("finished_at", "success"),
        _WHOSE,
    ),
    "workflow_approvals": Growth(
        lambda stored, _: stored["status"] == "pending",
        frozenset({"workflow_run_id", "gate", "summary", "created_at"}),
        ("status",),
        frozenset({"kind", "artifact"}),
    ),
    "cron_overrides": _override_growth(),
    "workflow_overrides": _override_growth(),
    "cron_fires": Growth(lambda *_: False, frozenset({"cron_name", "source", "started_at"}), ()),
    "messaging_sessions": Growth(
        lambda stored, row: bool(stored["active"]) and stored["last_activity_at"] <= row["last_activity_at"],
        frozenset({"platform", "channel_id", "thread_id", "user_id", "created_at"}),
        ("active", "last_activity_at", "version"),
        frozenset({"message_count"}),
    ),
}
