"""The vocabularies of conversations, and the limits of what callers may store in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from lastlight_state.db.valid import words

InvocationKind = Literal["agent", "play", "flow", "fanout", "show-play", "engine"]
SourceKind = Literal["live", "imported_fs", "imported_codex"]
OnRepeat = Literal["skip", "keep"]
Mode = Literal["db", "json", "python"]
SaveMode = Literal["grow", "replace"]
InboxState = Literal["open", "all"]
Metric = Literal["cosine", "dot", "l2"]
SessionStatus = Literal[
    "pending", "running", "completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled"
]
Source = Literal["executor", "agent", "admin", "system"]
#: Of what a feed tells.
ChangeKind = Literal[
    "session.created",
    "session.updated",
    "messages.appended",
    "message.revised",
    "progression.replaced",
    "progression.truncated",
    "branch.created",
    "branch.forked",
    "branch.updated",
    "branch.deleted",
    "status.changed",
]
Health = Literal["unknown", "ok", "running", "idle", "stalled", "process_dead", "orphaned"]
DeliveryState = Literal["not_expected", "unknown", "passed", "partial", "missing", "invalid"]
Severity = Literal["critical", "warning", "info", "neutral"]
Tone = Literal["danger", "warning", "info", "success", "neutral"]

INVOCATION_KINDS = words(InvocationKind)
SOURCE_KINDS = words(SourceKind)
ON_REPEAT = words(OnRepeat)
MODES = words(Mode)
SAVE_MODES = words(SaveMode)
INBOX_STATES = words(InboxState)
METRICS = words(Metric)
LIVE: SourceKind = "live"
STATUSES = words(SessionStatus)
SOURCES = words(Source)
RUNNING: SessionStatus = "running"
#: The statuses with which work has ended.
TERMINAL = STATUSES - {"pending", RUNNING}

#: Why a status changes, if the caller does not say.
USUAL_REASONS: Mapping[str, str] = {
    "pending": "run.pending.created",
    RUNNING: "run.started.ok",
    "completed": "run.completed.ok",
    "completed_empty": "run.completed_empty.ok",
    "failed": "run.failed.exception",
    "timed_out": "run.timed_out.deadline",
    "aborted": "run.aborted.user",
    "cancelled": "run.cancelled.system",
}
#: Why a session that has ended runs again.
RESUMED = "run.running.resumed"
#: Why a session is ended that gave no sign of life for too long.
SILENT = "session.stale.no_heartbeat"
#: All reasons of a change of status: ``<domain>.<status>.<cause>``.
REASONS = frozenset(
    {
        *USUAL_REASONS.values(),
        RESUMED,
        "run.failed.dependency",
        "run.failed.exit_code",
        "run.failed.heartbeat",
        "run.failed.process_dead",
        "run.failed.verification",
        "run.timed_out.idle",
        "run.aborted.signal",
        "run.cancelled.admin",
        "run.cancelled.parent",
        "run.cancelled.user",
        "legacy.imported",
        SILENT,
    }
)

#: The class of a message that names none, and its number.
UNKNOWN_CLASS, UNKNOWN_TYPE = "__unknown__", 0
#: The greatest number of the classes that are known from the start.
LAST_TYPE = 5

#: The most bytes of all messages or chunks of one call.
BATCH_BYTES = 32 * 1024 * 1024

#: The most messages that one call appends.
BATCH = 1_000
#: The most ids that one call asks for, and the most that `progressions.collection` returns.
MANY = 10_000
#: The most messages of a tree, counted in every branch that has them.
TREE = 50_000
#: The most branches of a tree.
TREE_BRANCHES = 1_000
#: The most ancestors that a branch has.
FORK_DEPTH = 1_000
#: The most numbers of an embedding.
DIMENSIONS = 16_384
#: The most that a search finds.
TOP = 1_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
MESSAGE = "message"
MESSAGE_TYPE = "message_type"
PROGRESSION = "progression"
SESSION = "session"
BRANCH = "branch"
CHUNK_KIND = "chunk"
DELIVERY: Literal["delivery"] = "delivery"

#: The code of a `Conflict` about what forks have inherited.
FORK_PREFIX = "fork_prefix"
#: The codes of a `Conflict` about a session or branch that stays: it is under way, held, or others have forked it.
NOT_ENDED, HELD, FORKED = "not_ended", "held", "forked"
#: The code of a `Conflict` about a feed of which the rows asked for are gone.
FEED_TRIMMED = "feed_trimmed"

#: The only member of a content that was emptied.
REDACTED = "lion_content_pruned"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def is_redacted(content: Any) -> bool:
    """Return True if a content is what a redaction leaves, and holds nothing else."""
    told = content.get(REDACTED) if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(told, dict) or told.keys() != {"at", "original_bytes"}:
        return False
    at, size = told["at"], told["original_bytes"]
    return isinstance(at, str) and _TIME.fullmatch(at) is not None and type(size) is int
