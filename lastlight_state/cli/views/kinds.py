"""The kinds of records that can be listed and shown: how each is read, and which columns people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lastlight_state.cli.screen import Column
from lastlight_state.cli.views import journal_kinds, run_kinds
from lastlight_state.cli.views.kind import Filters, Kind, Store
from lastlight_state.conversations import SessionFilter
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore

if TYPE_CHECKING:
    from lastlight_state.checkpoints import CheckpointSummary, CheckpointThread
    from lastlight_state.conversations import BranchSummary, SessionSummary, Transition
    from lastlight_state.files.mailbox import MailboxInfo
    from lastlight_state.messaging import MessagingMessageSummary, MessagingSessionSummary
    from lastlight_state.outputs import CacheSummary, OutputSummary, OutputTableSummary, RunInputSummary
    from lastlight_state.receipts import ReceiptSummary
    from lastlight_state.schedules import CronSummary, FireSummary
    from lastlight_state.states import StateSummary

# The kinds of output records: output tables and what wrote them, inputs of runs, the cache.

OUTPUTS: tuple[Column[OutputTableSummary], ...] = (
    Column("KEY", lambda one: one.key, keep=True),
    Column("TABLE", lambda one: one.table_name, keep=True, rank=1),
    Column("KIND", lambda one: one.kind, rank=2),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
)
ROWS: tuple[Column[OutputSummary], ...] = (
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("NODE", lambda one: one.node_id, keep=True),
    Column("ITERATION", lambda one: one.iteration, right=True),
    Column("WRITTEN", lambda one: one.updated_at, keep=True),
)
INPUTS: tuple[Column[RunInputSummary], ...] = (
    Column("REVISION", lambda one: one.revision, keep=True, right=True),
    Column("GIVEN", lambda one: one.created_at, keep=True),
    Column("BY", lambda one: one.created_by),
    Column("REASON", lambda one: one.reason),
)
CACHE: tuple[Column[CacheSummary], ...] = (
    Column("KEY", lambda one: one.cache_key, is_id=True),
    Column("WORKFLOW", lambda one: one.workflow_name),
    Column("NODE", lambda one: one.node_id, rank=2),
    Column("OUTPUT", lambda one: one.output_key, rank=3),
    Column("STORED", lambda one: one.created_at, keep=True),
    Column("EXPIRES", lambda one: one.expires_at, keep=True, rank=1),
)


def _outputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("outputs", "status", "since", "run")
    return store.outputs.catalog.list(**filters.page_arguments)


def _inputs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("inputs", "status", "since")
    return store.outputs.inputs.list(filters.run("inputs"), **filters.page_arguments)


def _cache(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("cached results", "status", "since", "run")
    return store.outputs.cache.list(**filters.page_arguments)


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
OUTPUT_COLUMNS: Mapping[str, tuple[Column[Any], ...]] = {"rows": ROWS, "revisions": INPUTS}


# The kinds of conversation records: sessions, with their branches.

CONVERSATIONS: tuple[Column[SessionSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("NAME", lambda one: one.name),
    Column("STATUS", lambda one: one.status),
    Column("KIND", lambda one: one.invocation_kind, rank=3),
    Column("AGENT", lambda one: one.agent_name, rank=1),
    Column("BRANCHES", lambda one: one.branch_count, right=True, rank=2),
    Column("MESSAGES", lambda one: one.message_count, right=True),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
)
BRANCHES: tuple[Column[BranchSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("NAME", lambda one: one.name),
    Column("PARENT", lambda one: one.parent_branch_id, is_id=True, rank=1),
    Column("AT", lambda one: one.forked_at_ord, right=True),
    Column("MESSAGES", lambda one: one.length, right=True),
    Column("CREATED", lambda one: one.created_at, keep=True),
)
TRANSITIONS: tuple[Column[Transition], ...] = (
    Column("SEQ", lambda one: one.seq, keep=True, right=True),
    Column("BRANCH", lambda one: one.branch_id, is_id=True),
    Column("FROM", lambda one: one.previous_status),
    Column("TO", lambda one: one.status),
    Column("REASON", lambda one: one.reason_code),
    Column("ACTOR", lambda one: one.actor, rank=1),
    Column("AT", lambda one: one.created_at, keep=True),
)


def _conversations(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("sessions", "run")
    where = SessionFilter(statuses=filters.statuses, updated_since=filters.since, project=filters.project)
    return store.conversations.sessions.list(where=where, **filters.page_arguments)


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
CONVERSATION_COLUMNS: Mapping[str, tuple[Column[Any], ...]] = {"branches": BRANCHES, "transitions": TRANSITIONS}


SESSIONS: tuple[Column[MessagingSessionSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("PLATFORM", lambda one: one.platform, rank=2),
    Column("CHANNEL", lambda one: one.channel_id),
    Column("THREAD", lambda one: one.thread_id, rank=3),
    Column("USER", lambda one: one.user_id),
    Column("ACTIVE", lambda one: one.active, rank=1),
    Column("MESSAGES", lambda one: one.message_count, right=True),
    Column("UPDATED", lambda one: one.last_activity_at, keep=True),
)
MESSAGES: tuple[Column[MessagingMessageSummary], ...] = (
    Column("ID", lambda one: one.id, keep=True, right=True),
    Column("ROLE", lambda one: one.role),
    Column("AT", lambda one: one.timestamp, keep=True),
    Column("TEXT", lambda one: one.preview, below=True),
)
CRONS: tuple[Column[CronSummary], ...] = (
    Column("NAME", lambda one: one.name, keep=True),
    Column("PATTERN", lambda one: one.effective_pattern),
    Column("ZONE", lambda one: one.effective_timezone, rank=3),
    Column("ENABLED", lambda one: one.effective_enabled),
    Column("NEXT", lambda one: one.next_run_at, keep=True),
    Column("LAST", lambda one: one.last_run_at, keep=True, rank=2),
    Column("TARGET", lambda one: one.target, rank=1),
)
FIRES: tuple[Column[FireSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("CRON", lambda one: one.cron_name),
    Column("STATUS", lambda one: one.status),
    Column("FOR", lambda one: one.scheduled_for, keep=True),
    Column("STARTED", lambda one: one.started_at, keep=True, rank=1),
    Column("DISPATCHED", lambda one: one.dispatched, right=True, rank=2),
    Column("NOTE", lambda one: one.note),
)
MAILBOXES: tuple[Column[MailboxInfo], ...] = (
    Column("GROUP", lambda one: one.group, keep=True),
    Column("SESSION", lambda one: one.session, keep=True),
    Column("INBOUND", lambda one: one.inbound_bytes, right=True, rank=1),
    Column("OUTBOUND", lambda one: one.outbound_bytes, right=True, rank=2),
    Column("HEARTBEAT", lambda one: one.heartbeat_at, keep=True),
)
RECEIPTS: tuple[Column[ReceiptSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("KIND", lambda one: one.kind),
    Column("SCOPE", lambda one: one.scope),
    Column("STATE", lambda one: one.state),
    Column("STARTED", lambda one: one.started_at, keep=True),
    Column("UPDATED", lambda one: one.updated_at, keep=True, rank=1),
    Column("ROWS", lambda found: sum(found.counts.values()), right=True),
)

#: The columns of both threads and states.
KEYED: tuple[Column[CheckpointThread | StateSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("SCOPE", lambda one: one.scope, rank=2),
    Column("KEY", lambda one: one.key, keep=True),
    Column("USER", lambda one: one.user, rank=1),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
    Column("EXPIRES", lambda one: one.expires_at, keep=True, rank=3),
)
CHECKPOINTS: tuple[Column[CheckpointSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("NAMESPACE", lambda one: one.namespace),
    Column("SEQ", lambda one: one.seq, right=True, keep=True),
    Column("RUN", lambda one: one.run_ref, rank=2, keep=True),
    Column("AT", lambda one: one.created_at, keep=True),
    Column("METADATA", lambda one: one.metadata, below=True),
)


def _sessions(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("messaging", "since", "run")
    return store.messaging.sessions.list(active=_active(filters.statuses), **filters.page_arguments)


def _crons(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("crons", "since", "run")
    return store.schedules.crons.list(**_cron_state(filters.statuses), **filters.page_arguments)


def _fires(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("fires", "run")
    statuses: Any = filters.statuses
    return store.schedules.fires.list(status=statuses, since=filters.since, **filters.page_arguments)


def _receipts(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("receipts", "since", "run")
    return store.receipts.list(state=filters.status, **filters.page_arguments)


def _threads(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("threads", "status", "since", "run")
    return store.checkpoints.threads(**filters.page_arguments)


def _states(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("states", "status", "since", "run")
    return store.states.list(**filters.page_arguments)


def _mailboxes(store: StateStore, filters: Filters) -> Page[Any]:
    filters.refuse("mailboxes", "status", "since", "run")
    return store.mailbox.list(**filters.page_arguments)


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
COLUMNS: Mapping[str, tuple[Column[Any], ...]] = {
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
