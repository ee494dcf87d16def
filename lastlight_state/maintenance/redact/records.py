"""Records of redactions and erasures."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.db.records import Record


class RedactPlan(Record):
    """What a redaction would empty at this moment: nothing is written to find out.

    ``counts`` are rows by table: messages that are emptied, and chunks of them that go. ``bytes`` is the size of the
    contents. ``protected`` says how many messages stay as they are, by the reason.
    """

    counts: Mapping[str, int]
    bytes: int
    protected: Mapping[str, int]


class ErasePlan(RedactPlan):
    """What an erasure would do. ``counts`` are rows by table: messages, executions and changes of status that are
    emptied, sessions and branches that forget the person, and chunks, threads of checkpoints, states and rows of
    chat connectors that are removed.

    ``agent_sessions`` are the agent's own sessions behind the person's chats and sessions, at most 500: their log files
    are not touched.
    """

    agent_sessions: tuple[str, ...]
