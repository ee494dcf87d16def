"""Which rows ever leave the database, for every table: the kinds of prune that remove them, or why they stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """``pruned_as`` are the kinds of prune that remove rows of the table; ``kept`` says why its other rows stay."""

    pruned_as: tuple[str, ...] = ()
    kept: str = ""


_WITH_RUN = Retention(pruned_as=("runs",))
_JOURNAL = Retention(pruned_as=("runs", "journal"))
_CONVERSATION = Retention(pruned_as=("sessions",))
_ORDERS = Retention(pruned_as=("sessions", "orphans"))
_VECTORS = Retention(kept="derived data: `store.conversations.vectors.clear` removes them")
_WORDS = Retention(kept="words that rows of conversations name")

#: Every table of the schema. A table that is added must be added here.
RETENTION: Mapping[str, Retention] = {
    "workflow_runs": _WITH_RUN,
    "executions": Retention(pruned_as=("runs", "executions")),
    "run_nodes": _WITH_RUN,
    "run_loops": _WITH_RUN,
    "run_transitions": _WITH_RUN,
    "workflow_approvals": _WITH_RUN,
    "human_requests": _WITH_RUN,
    "run_events": _JOURNAL,
    "run_signals": _JOURNAL,
    "run_frames": _JOURNAL,
    "run_sequences": _WITH_RUN,
    "tool_calls": _JOURNAL,
    "sandboxes": _WITH_RUN,
    "scores": _JOURNAL,
    "run_inputs": _WITH_RUN,
    "output_history": _WITH_RUN,
    "messaging_sessions": Retention(pruned_as=("messaging",)),
    "messaging_messages": Retention(pruned_as=("messaging",)),
    "cron_fires": Retention(pruned_as=("fires",)),
    "messages": Retention(pruned_as=("sessions", "exchange", "orphans")),
    "progressions": _ORDERS,
    "progression_links": _ORDERS,
    "sessions": _CONVERSATION,
    "branches": _CONVERSATION,
    "vector_namespaces": _VECTORS,
    "vectors": _VECTORS,
    "session_transitions": Retention(kept="the history of statuses outlives its session"),
    "session_changes": Retention(pruned_as=("sessions", "changes")),
    "exchange_inboxes": Retention(kept="one row for each owner, with the number of the next delivery"),
    "exchange_deliveries": Retention(pruned_as=("sessions", "exchange")),
    "exchange_members": Retention(kept="one row for each member of a channel"),
    "message_types": _WORDS,
    "invocation_kinds": _WORDS,
    "source_kinds": _WORDS,
    "output_cache": Retention(pruned_as=("cache",)),
    "output_tables": Retention(kept="one row for each output table; the rows of those tables go with their run"),
    "cron_schedules": Retention(kept="configuration; a cron that is gone is retired"),
    "cron_overrides": Retention(kept="configuration; `clear` removes one"),
    "workflow_overrides": Retention(kept="configuration; `clear` removes one"),
    "maintenance_receipts": Retention(kept="the proof of what was removed"),
    "tombstones": Retention(kept="what was removed must not come back by an import"),
    "import_ledger": Retention(kept="what was imported must not be imported twice"),
    "copy_progress": Retention(kept="how far copies came; a few rows for each"),
    "lastlight_meta": Retention(kept="facts about the schema"),
    "maintenance_permits": Retention(kept="always empty at rest"),
}
