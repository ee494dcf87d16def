"""The kinds of record that can be listed and shown: how each is read, and which columns people see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from lastlight_state.cli.screen import Column
from lastlight_state.db.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore, View

Store = StateStore | View


@dataclass(frozen=True)
class Filters:
    """What a list is to show. None filters nothing; the repository judges the words."""

    statuses: Sequence[Any] | None
    since: datetime | None
    limit: int
    page_token: str | None

    @property
    def paging(self) -> dict[str, Any]:
        return {"limit": self.limit, "page_token": self.page_token}


@dataclass(frozen=True)
class Kind:
    """How to list a kind, and to get one with its children. ``name`` is its singular, as `show` takes it."""

    name: str
    columns: tuple[Column, ...]
    page: Callable[[Store, Filters], Page[Any]]
    get: Callable[[Store, str], Any]
    children: Callable[[Store, Any], Mapping[str, Page[Any]]]
    empty: str


def _column(title: str, field: str | None = None, **options: bool) -> Column:
    return Column(title, attrgetter(field or title.lower()), **options)


RUNS = (
    _column("ID", keep=True),
    _column("WORKFLOW", "workflow_name"),
    _column("STATUS"),
    _column("PHASE", "current_phase"),
    _column("TRIGGER", "trigger_id"),
    _column("UPDATED", "updated_at", keep=True),
    _column("COST", "totals.cost_usd", right=True),
)
EXECUTIONS = (
    _column("ID", keep=True),
    _column("SKILL"),
    _column("OUTCOME"),
    _column("SESSION", "session_id", keep=True),
    _column("STARTED", "started_at", keep=True),
    Column(
        "SECONDS", lambda found: None if found.duration_ms is None else f"{found.duration_ms / 1000:.1f}", right=True
    ),
    _column("TURNS", right=True),
    _column("COST", "cost_usd", right=True),
)
APPROVALS = (
    _column("ID", keep=True),
    _column("RUN", "run_id", keep=True),
    _column("GATE"),
    _column("STATUS"),
    _column("BY", "answered_by"),
    _column("ASKED", "asked_at", keep=True),
    _column("SUMMARY"),
)
SESSIONS = (
    _column("ID", keep=True),
    _column("PLATFORM"),
    _column("CHANNEL", "channel_id"),
    _column("THREAD", "thread_id"),
    _column("USER", "user_id"),
    _column("ACTIVE"),
    _column("MESSAGES", "message_count", right=True),
    _column("UPDATED", "last_activity_at", keep=True),
)
MESSAGES = (
    _column("ID", keep=True, right=True),
    _column("ROLE"),
    _column("AT", "timestamp", keep=True),
    _column("TEXT", "preview"),
)
CRONS = (
    _column("NAME", keep=True),
    _column("PATTERN", "effective_pattern"),
    _column("ZONE", "effective_timezone"),
    _column("ENABLED", "effective_enabled"),
    _column("NEXT", "next_run_at", keep=True),
    _column("LAST", "last_run_at", keep=True),
    _column("TARGET"),
)
FIRES = (
    _column("ID", keep=True),
    _column("STATUS"),
    _column("FOR", "scheduled_for", keep=True),
    _column("STARTED", "started_at", keep=True),
    _column("DISPATCHED", right=True),
    _column("NOTE"),
)

OUTPUTS = (
    _column("KEY", keep=True),
    _column("TABLE", "table_name", keep=True),
    _column("KIND"),
    _column("UPDATED", "updated_at", keep=True),
)
ROWS = (
    _column("RUN", "run_id", keep=True),
    _column("NODE", "node_id", keep=True),
    _column("ITERATION", right=True),
    _column("WRITTEN", "updated_at", keep=True),
)


def _runs(store: Store, filters: Filters) -> Page[Any]:
    return store.workflows.runs.list(statuses=filters.statuses, since=filters.since, **filters.paging)


def _executions(store: Store, filters: Filters) -> Page[Any]:
    return store.workflows.executions.list(outcomes=filters.statuses, since=filters.since, **filters.paging)


def _approvals(store: Store, filters: Filters) -> Page[Any]:
    _refuse_since("approvals", filters)
    return store.workflows.approvals.list(statuses=filters.statuses, **filters.paging)


def _sessions(store: Store, filters: Filters) -> Page[Any]:
    _refuse_since("messaging", filters)
    return store.messaging.sessions.list(active=_active(filters.statuses), **filters.paging)


def _crons(store: Store, filters: Filters) -> Page[Any]:
    _refuse_since("crons", filters)
    return store.schedules.crons.list(**_cron_state(filters.statuses), **filters.paging)


def _outputs(store: Store, filters: Filters) -> Page[Any]:
    _refuse_since("outputs", filters)
    if filters.statuses is not None:
        raise InvalidValue("--status", "outputs have none")
    return store.outputs.catalog.list(**filters.paging)


def _refuse_since(kind: str, filters: Filters) -> None:
    if filters.since is not None:
        raise InvalidValue("--since", f"{kind} are not listed by their start")


def _active(statuses: Sequence[str] | None) -> bool | None:
    if statuses is None or set(statuses) == {"active", "inactive"}:
        return None
    if len(statuses) != 1 or statuses[0] not in ("active", "inactive"):
        raise InvalidValue("--status", f"{', '.join(statuses)} is none", permitted=("active", "inactive"))
    return statuses[0] == "active"


def _cron_state(statuses: Sequence[str] | None) -> Mapping[str, Any]:
    if statuses is None:
        return {}
    if len(statuses) != 1 or statuses[0] not in _CRON_STATES:
        raise InvalidValue("--status", f"{', '.join(statuses)} is none", permitted=tuple(_CRON_STATES))
    return _CRON_STATES[statuses[0]]


_CRON_STATES: Mapping[str, Mapping[str, Any]] = {
    "enabled": {"enabled": True},
    "disabled": {"enabled": False},
    "retired": {"retired": True},
}


def _of_run(store: Store, run: Any) -> Mapping[str, Page[Any]]:
    return {
        "executions": store.workflows.executions.list(run_id=run.id),
        "approvals": store.workflows.approvals.list_for_run(run.id),
    }


def _of_session(store: Store, session: Any) -> Mapping[str, Page[Any]]:
    return {"messages": store.messaging.messages.list(session.id)}


def _of_cron(store: Store, cron: Any) -> Mapping[str, Page[Any]]:
    return {"fires": store.schedules.fires.list(cron_name=cron.name)}


def _of_output(store: Store, table: Any) -> Mapping[str, Page[Any]]:
    return {"rows": store.outputs.results.list(table.key)}


def _childless(_: Store, __: Any) -> Mapping[str, Page[Any]]:
    return {}


#: By the word that ``ls`` takes.
KINDS = {
    "runs": Kind("run", RUNS, _runs, lambda store, key: store.workflows.runs.get(key), _of_run, "(no runs)"),
    "executions": Kind(
        "execution",
        EXECUTIONS,
        _executions,
        lambda store, key: store.workflows.executions.get(key),
        _childless,
        "(no executions)",
    ),
    "approvals": Kind(
        "approval",
        APPROVALS,
        _approvals,
        lambda store, key: store.workflows.approvals.get(key),
        _childless,
        "(no approvals)",
    ),
    "messaging": Kind(
        "messaging",
        SESSIONS,
        _sessions,
        lambda store, key: store.messaging.sessions.get(key),
        _of_session,
        "(no chat sessions)",
    ),
    "outputs": Kind(
        "output", OUTPUTS, _outputs, lambda store, key: store.outputs.catalog.entry(key), _of_output, "(no outputs)"
    ),
    "crons": Kind("cron", CRONS, _crons, lambda store, key: store.schedules.crons.get(key), _of_cron, "(no crons)"),
}

#: The columns of children, by their name in ``Kind.children``.
COLUMNS = {"executions": EXECUTIONS, "approvals": APPROVALS, "messages": MESSAGES, "fires": FIRES, "rows": ROWS}

#: By the word that ``show`` takes.
BY_NAME = {kind.name: kind for kind in KINDS.values()}
