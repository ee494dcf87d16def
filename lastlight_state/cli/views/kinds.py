"""The kinds of records that can be listed and shown: how each is read, and which columns people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state.cli.screen import Column
from lastlight_state.cli.views import journal_kinds, run_kinds
from lastlight_state.cli.views.kind import Filters, Kind, Store, column
from lastlight_state.conversations import SessionFilter
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore

# The kinds of output records: output tables and what wrote them, inputs of runs, the cache.

OUTPUTS = (
    column("KEY", keep=True),
    column("TABLE", "table_name", keep=True, rank=1),
    column("KIND", rank=2),
    column("UPDATED", "updated_at", keep=True),
)
ROWS = (
    column("RUN", "run_id", is_id=True),
    column("NODE", "node_id", keep=True),
    column("ITERATION", right=True),
    column("WRITTEN", "updated_at", keep=True),
)
INPUTS = (
    column("REVISION", keep=True, right=True),
    column("GIVEN", "created_at", keep=True),
    column("BY", "created_by"),
    column("REASON"),
)
CACHE = (
    column("KEY", "cache_key", is_id=True),
    column("WORKFLOW", "workflow_name"),
    column("NODE", "node_id", rank=2),
    column("OUTPUT", "output_key", rank=3),
    column("STORED", "created_at", keep=True),
    column("EXPIRES", "expires_at", keep=True, rank=1),
)


def _outputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("outputs", "status", "since", "run")
    return store.outputs.catalog.list(**filters.paging)


def _inputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("inputs", "status", "since")
    return store.outputs.inputs.list(filters.run("inputs"), **filters.paging)


def _cache(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("cached results", "status", "since", "run")
    return store.outputs.cache.list(**filters.paging)


def _of_output(store: Store, table: Any) -> Mapping[str, Page[Any]]:
    return {"rows": store.outputs.results.list(table.key)}


def _of_input(store: Store, found: Any) -> Mapping[str, Page[Any]]:
    return {"revisions": store.outputs.inputs.list(found.run_id)}


#: Kinds of records, by the word that ``ls`` takes.
OUTPUT_KINDS = {
    "outputs": Kind(
        "output",
        OUTPUTS,
        _outputs,
        "(no outputs)",
        lambda store, key: store.outputs.catalog.entry(key),
        children=_of_output,
    ),
    "inputs": Kind(
        "input", INPUTS, _inputs, "(no inputs)", lambda store, key: store.outputs.inputs.get(key), children=_of_input
    ),
    "cache": Kind("cached result", CACHE, _cache, "(no cached results)"),
}

#: The columns of children, by their name in ``Kind.children``.
OUTPUT_COLUMNS = {"rows": ROWS, "revisions": INPUTS}


# The kinds of conversation records: sessions, with their branches.

CONVERSATIONS = (
    column("ID", is_id=True),
    column("NAME"),
    column("STATUS"),
    column("KIND", "invocation_kind", rank=3),
    column("AGENT", "agent_name", rank=1),
    column("BRANCHES", "branch_count", right=True, rank=2),
    column("MESSAGES", "message_count", right=True),
    column("UPDATED", "updated_at", keep=True),
)
BRANCHES = (
    column("ID", is_id=True),
    column("NAME"),
    column("PARENT", "parent_branch_id", is_id=True, rank=1),
    column("AT", "forked_at_ord", right=True),
    column("MESSAGES", "length", right=True),
    column("CREATED", "created_at", keep=True),
)
TRANSITIONS = (
    column("SEQ", keep=True, right=True),
    column("BRANCH", "branch_id", is_id=True),
    column("FROM", "previous_status"),
    column("TO", "status"),
    column("REASON", "reason_code"),
    column("ACTOR", rank=1),
    column("AT", "created_at", keep=True),
)


def _conversations(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("sessions", "run")
    where = SessionFilter(statuses=filters.statuses, updated_since=filters.since, project=filters.project)
    return store.conversations.sessions.list(where=where, **filters.paging)


def _of_conversation(store: Store, session: Any) -> Mapping[str, Page[Any]]:
    talks = store.conversations
    return {"branches": talks.branches.list(session.id), "transitions": talks.lifecycle.history(session.id)}


#: Kinds of records, by the word that ``ls`` takes.
CONVERSATION_KINDS = {
    "sessions": Kind(
        "session",
        CONVERSATIONS,
        _conversations,
        "(no sessions)",
        lambda store, key: store.conversations.sessions.get(key),
        children=_of_conversation,
        by=("project",),
    ),
}

#: The columns of children, by their name in ``Kind.children``.
CONVERSATION_COLUMNS = {"branches": BRANCHES, "transitions": TRANSITIONS}


SESSIONS = (
    column("ID", is_id=True),
    column("PLATFORM", rank=2),
    column("CHANNEL", "channel_id"),
    column("THREAD", "thread_id", rank=3),
    column("USER", "user_id"),
    column("ACTIVE", rank=1),
    column("MESSAGES", "message_count", right=True),
    column("UPDATED", "last_activity_at", keep=True),
)
MESSAGES = (
    column("ID", keep=True, right=True),
    column("ROLE"),
    column("AT", "timestamp", keep=True),
    column("TEXT", "preview", below=True),
)
CRONS = (
    column("NAME", keep=True),
    column("PATTERN", "effective_pattern"),
    column("ZONE", "effective_timezone", rank=3),
    column("ENABLED", "effective_enabled"),
    column("NEXT", "next_run_at", keep=True),
    column("LAST", "last_run_at", keep=True, rank=2),
    column("TARGET", rank=1),
)
FIRES = (
    column("ID", is_id=True),
    column("CRON", "cron_name"),
    column("STATUS"),
    column("FOR", "scheduled_for", keep=True),
    column("STARTED", "started_at", keep=True, rank=1),
    column("DISPATCHED", right=True, rank=2),
    column("NOTE"),
)
MAILBOXES = (
    column("GROUP", keep=True),
    column("SESSION", keep=True),
    column("INBOUND", "inbound_bytes", right=True, rank=1),
    column("OUTBOUND", "outbound_bytes", right=True, rank=2),
    column("HEARTBEAT", "heartbeat_at", keep=True),
)
RECEIPTS = (
    column("ID", is_id=True),
    column("KIND"),
    column("SCOPE"),
    column("STATE"),
    column("STARTED", "started_at", keep=True),
    column("UPDATED", "updated_at", keep=True, rank=1),
    Column("ROWS", lambda found: sum(found.counts.values()), right=True),
)

#: The columns of both threads and states.
KEYED = (
    column("ID", is_id=True),
    column("SCOPE", rank=2),
    column("KEY", keep=True),
    column("USER", rank=1),
    column("UPDATED", "updated_at", keep=True),
    column("EXPIRES", "expires_at", keep=True, rank=3),
)
CHECKPOINTS = (
    column("ID", is_id=True),
    column("NAMESPACE"),
    column("SEQ", right=True, keep=True),
    column("RUN", "run_ref", rank=2, keep=True),
    column("AT", "created_at", keep=True),
    column("METADATA", below=True),
)


def _sessions(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("messaging", "since", "run")
    return store.messaging.sessions.list(active=_active(filters.statuses), **filters.paging)


def _crons(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("crons", "since", "run")
    return store.schedules.crons.list(**_cron_state(filters.statuses), **filters.paging)


def _fires(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("fires", "run")
    statuses: Any = filters.statuses
    return store.schedules.fires.list(status=statuses, since=filters.since, **filters.paging)


def _receipts(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("receipts", "since", "run")
    return store.receipts.list(state=filters.status, **filters.paging)


def _threads(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("threads", "status", "since", "run")
    return store.checkpoints.threads(**filters.paging)


def _states(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("states", "status", "since", "run")
    return store.states.list(**filters.paging)


def _mailboxes(store: StateStore, filters: Filters) -> Page[Any]:
    filters.refuse("mailboxes", "status", "since", "run")
    return store.mailbox.list(**filters.paging)


def _active(statuses: Sequence[str] | None) -> bool | None:
    if statuses is None or set(statuses) == {"active", "inactive"}:
        return None
    if len(statuses) != 1 or statuses[0] not in ("active", "inactive"):
        raise InvalidValue("--status", f"unknown: {', '.join(statuses)}", permitted=("active", "inactive"))
    return statuses[0] == "active"


def _cron_state(statuses: Sequence[str] | None) -> Mapping[str, Any]:
    if statuses is None:
        return {}
    if len(statuses) != 1 or statuses[0] not in _CRON_STATES:
        raise InvalidValue("--status", f"unknown: {', '.join(statuses)}", permitted=tuple(_CRON_STATES))
    return _CRON_STATES[statuses[0]]


_CRON_STATES: Mapping[str, Mapping[str, Any]] = {
    "enabled": {"enabled": True},
    "disabled": {"enabled": False},
    "retired": {"retired": True},
}


def _of_session(store: Store, session: Any) -> Mapping[str, Page[Any]]:
    return {"messages": store.messaging.messages.list(session.id)}


def _of_cron(store: Store, cron: Any) -> Mapping[str, Page[Any]]:
    return {"fires": store.schedules.fires.list(cron_name=cron.name)}


def _thread(store: Store, key: str) -> Any:
    return store.checkpoints.thread_of(key)


def _of_thread(store: Store, thread: Any) -> Mapping[str, Page[Any]]:
    return {"checkpoints": store.checkpoints.list(thread.key, scope=thread.scope)}


#: Kinds of records, by the word that ``ls`` takes.
KINDS = {
    **CONVERSATION_KINDS,
    **run_kinds.KINDS,
    "messaging": Kind(
        "messaging",
        SESSIONS,
        _sessions,
        "(no chat sessions)",
        lambda store, key: store.messaging.sessions.get(key),
        children=_of_session,
    ),
    "crons": Kind(
        "cron", CRONS, _crons, "(no crons)", lambda store, key: store.schedules.crons.get(key), children=_of_cron
    ),
    "fires": Kind("fire", FIRES, _fires, "(no fires)", lambda store, key: store.schedules.fires.get(key)),
    "threads": Kind("thread", KEYED, _threads, "(no threads)", _thread, children=_of_thread),
    "states": Kind("state", KEYED, _states, "(no states)", lambda store, key: store.states.state_of(key)),
    "mailboxes": Kind("mailbox", MAILBOXES, _mailboxes, "(no mailboxes)"),
    "receipts": Kind("receipt", RECEIPTS, _receipts, "(no receipts)", lambda store, key: store.receipts.get(key)),
    **journal_kinds.KINDS,
    **OUTPUT_KINDS,
}

#: The columns of children, by their name in ``Kind.children``.
COLUMNS = {
    "messages": MESSAGES,
    "fires": FIRES,
    "checkpoints": CHECKPOINTS,
    **OUTPUT_COLUMNS,
    **run_kinds.COLUMNS,
    **CONVERSATION_COLUMNS,
}

#: Kinds of records, by the word that ``show`` takes.
BY_NAME = {kind.name: kind for kind in KINDS.values() if kind.get or kind.part}

#: ``ls`` and ``show`` each accept the other's word too: ``ls run``, ``show runs``.
PLURALS = {kind.name: word for word, kind in KINDS.items()}
SINGULARS = {word: kind.name for word, kind in KINDS.items() if kind.name in BY_NAME}
