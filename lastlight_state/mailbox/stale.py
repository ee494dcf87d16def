"""Whether an agent is stuck. Pure.

It is judged from its last sign of life, the later of its heartbeat and its start: so an agent without a heartbeat is
neither immortal nor killed at once, and what a predecessor left cannot stop a fresh one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from lastlight_state.mailbox.arguments import StalePolicy

#: ``silent``: no sign of life for too long. ``claim``: none since a claim that is too old.
Reason = Literal["silent", "claim"]


@dataclass(frozen=True)
class Signs:
    """What a host knows of a running agent. ``claims`` are the times of its live claims."""

    started_at: datetime
    heartbeat: datetime | None = None
    tool: str | None = None
    tool_timeout: timedelta | None = None
    claims: Sequence[datetime] = ()


def verdict(signs: Signs, now: datetime, policy: StalePolicy) -> tuple[Reason, str] | None:
    """Why the agent must be stopped, with the evidence; None while it is well."""
    alive_at = max(signs.started_at, min(signs.heartbeat or signs.started_at, now))
    allowance = _allowance(signs, policy)
    silence = now - alive_at
    if silence > max(policy.silent_after, allowance):
        return "silent", f"no sign of life for {silence}"
    oldest = now - max(policy.claim_after, allowance)
    for claimed_at in signs.claims:
        if signs.started_at <= claimed_at < oldest and alive_at <= claimed_at:
            return "claim", f"no sign of life since a claim {now - claimed_at} ago"
    return None


def _allowance(signs: Signs, policy: StalePolicy) -> timedelta:
    """How long the tool in use may be silent."""
    timed = signs.tool is not None and signs.tool in policy.timed_tools
    return signs.tool_timeout if timed and signs.tool_timeout is not None else timedelta(0)
