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
#: The kinds of feed entries.
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
#: The final statuses: a session or branch with one of them has ended.
TERMINAL = STATUSES - {"pending", RUNNING}

#: The default reason codes of status changes, by the new status.
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
#: The default reason code for reopening a session that has ended.
RESUMED = "run.running.resumed"
#: The reason code for ending a session that gave no sign of life for too long.
SILENT = "session.stale.no_heartbeat"
#: All reason codes of status changes, in the form ``<domain>.<status>.<cause>``.
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

#: The class of a message that names no class, and the number of this class.
UNKNOWN_CLASS, UNKNOWN_TYPE = "__unknown__", 0
#: The greatest number among the message classes that every new database contains.
LAST_TYPE = 5

#: Most bytes of all messages or chunks in one call.
BATCH_BYTES = 32 * 1024 * 1024

#: Most messages that one call appends.
BATCH = 1_000
#: Most ids that one call may ask for, and most ids that `progressions.collection` returns.
MANY = 10_000
#: Most messages of a session tree. A message counts once in each branch that has it.
TREE = 50_000
#: Most branches of a session tree.
TREE_BRANCHES = 1_000
#: Most ancestors of a branch.
FORK_DEPTH = 1_000
#: Most dimensions of an embedding.
DIMENSIONS = 16_384
#: Most results of a search.
TOP = 1_000

# The kinds of records that `NotFound` and `AlreadyExists` errors name.
MESSAGE = "message"
MESSAGE_TYPE = "message_type"
PROGRESSION = "progression"
SESSION = "session"
BRANCH = "branch"
CHUNK_KIND = "chunk"
NAMESPACE_KIND = "vector namespace"
DELIVERY: Literal["delivery"] = "delivery"

#: The code of a `Conflict` over positions that a fork has inherited.
FORK_PREFIX = "fork_prefix"
#: The codes of a `Conflict` over a session or branch that cannot be deleted: it has not ended, is held, or has forks.
NOT_ENDED, HELD, FORKED = "not_ended", "held", "forked"
#: The code of a `Conflict` over a feed whose requested entries were deleted.
FEED_TRIMMED = "feed_trimmed"

#: The only key of a message content that was redacted.
REDACTED = "lion_content_pruned"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def is_redacted(content: Any) -> bool:
    """True if a message content is exactly the placeholder that a redaction leaves."""
    told = content.get(REDACTED) if isinstance(content, dict) and len(content) == 1 else None
    if not isinstance(told, dict) or told.keys() != {"at", "original_bytes"}:
        return False
    at, size = told["at"], told["original_bytes"]
    return isinstance(at, str) and _TIME.fullmatch(at) is not None and type(size) is int
