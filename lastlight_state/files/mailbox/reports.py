"""Results of calls that process a whole mailbox: starts, sweeps, drains and prunes."""

from __future__ import annotations

from lastlight_state.db.rows.records import Record


class StartReport(Record):
    """The result of an agent's start: its ``instance``, and how many claims of a predecessor it freed."""

    instance: str
    freed: int
    tidied: int


class SyncReport(Record):
    """The numbers of messages settled by acknowledgements, and of acknowledgements without a message.

    ``unknown`` counts messages that were acknowledged with an unknown word. These messages fail once that agent has
    stopped.
    """

    completed: int = 0
    failed: int = 0
    successors: int = 0
    ignored: int = 0
    unknown: int = 0
    unreadable_series: tuple[str, ...] = ()


class AdvanceReport(Record):
    """The number of series that got their next occurrence, and the ids with an unreadable pattern or zone."""

    successors: int = 0
    unreadable_series: tuple[str, ...] = ()


class ReleaseReport(Record):
    """The numbers of claims freed for another try, and of messages whose tries are used up.

    ``unknown`` counts messages that failed because the agent acknowledged them with an unknown word.
    """

    released: int = 0
    exhausted: int = 0
    unknown: int = 0


class Assessment(Record):
    """The advice to a host: ``ok``, ``wake`` (work is due and no agent runs) or ``stop`` (the agent is stuck)."""

    action: str
    reason: str | None = None
    evidence: str | None = None
    due: int = 0
    unreadable_claims: tuple[str, ...] = ()


class SweepReport(Record):
    """The result of one sweep of a session, step by step. A failed step is None, and ``errors`` names it."""

    group: str
    session: str
    sync: SyncReport | None = None
    advance: AdvanceReport | None = None
    release: ReleaseReport | None = None
    expired: int | None = None
    tidied: int | None = None
    assessment: Assessment | None = None
    errors: tuple[str, ...] = ()


class DrainReport(Record):
    """The result of a drain. ``failed`` will not be tried again; ``retried`` will."""

    delivered: int = 0
    retried: int = 0
    failed: int = 0


class PruneReport(Record):
    """The messages that were deleted, or would be with ``dry_run``.

    ``size_bytes`` is the size of their contents and files. ``receipts`` counts deleted receipts of messages that the
    agent had removed.
    """

    messages: int = 0
    receipts: int = 0
    size_bytes: int = 0
    dry_run: bool = True
