"""The data for a sweep's decisions: a snapshot of both files, and the check whether the agent is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import sqlalchemy as sa

from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import StalePolicy
from lastlight_state.files.mailbox.folder import Place, creation
from lastlight_state.files.mailbox.models import instant
from lastlight_state.files.mailbox.projections import Ack, Head
from lastlight_state.files.mailbox.reports import AdvanceReport, Assessment, ReleaseReport, SweepReport, SyncReport
from lastlight_state.files.mailbox.shared import messages
from lastlight_state.files.mailbox.shared.idle import Idle
from lastlight_state.files.mailbox.shared.messages import Poll
from lastlight_state.files.mailbox.shared.queries import BothFiles, TolerantSelect, labelled_columns

#: The age at which a folder without a stored message counts as left by a dead process.
LEFT_AFTER = timedelta(hours=1)

# Detection of a stuck agent.
#
# It goes by the agent's last sign of life: the later of its heartbeat and its start. So an agent without a heartbeat is
# neither kept for ever nor stopped at once, and a predecessor's old files cannot stop a new agent.

#: ``silent``: no sign of life for too long. ``claim``: none since a claim that is too old.
Reason = Literal["silent", "claim"]


@dataclass(frozen=True)
class Signs:
    """The signs of a running agent that a host can see. ``claims`` are the times of the agent's live claims."""

    started_at: datetime
    heartbeat: datetime | None = None
    tool: str | None = None
    tool_timeout: timedelta | None = None
    claims: Sequence[datetime] = ()


def judge_stale(signs: Signs, now: datetime, policy: StalePolicy) -> tuple[Reason, str] | None:
    """Return why the agent must be stopped, with the evidence, or None if the agent is not stuck."""
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
    """Return how long the agent may show no activity because of the tool in use."""
    timed = signs.tool is not None and signs.tool in policy.timed_tools
    return signs.tool_timeout if timed and signs.tool_timeout is not None else timedelta(0)


Held: TypeAlias = tuple[Head, Ack]

#: The longest time, in milliseconds, for which a tool may be silent: a year.
_LONGEST_TOOL = 365 * 86_400_000
_TOOL: TolerantSelect = TolerantSelect(models.CONTAINER_STATE, lambda columns: sa.select(*labelled_columns(columns)))


@dataclass(frozen=True)
class Signals:
    """The facts from which a sweep derives its advice. ``until`` is when more messages in the same files become due."""

    due: int
    until: datetime | None
    claims: tuple[datetime, ...]
    unreadable: tuple[str, ...]
    tool: str | None
    tool_timeout: timedelta | None

    def assessment(self, place: Place, started: datetime | None, policy: StalePolicy, now: datetime) -> Assessment:
        """Return what the host should do about the agent.

        ``started`` is when the agent started, None if it is not running.
        """
        if started is None:
            return Assessment(action="wake" if self.due else "ok", due=self.due)
        heartbeat = creation.last_beat(place.path)
        signs = Signs(started, heartbeat, self.tool, self.tool_timeout, self.claims)
        verdict = judge_stale(signs, now, policy)
        if verdict is None:
            return Assessment(action="ok", due=self.due, unreadable_claims=self.unreadable)
        reason, evidence = verdict
        return Assessment(
            action="stop", reason=reason, evidence=evidence, due=self.due, unreadable_claims=self.unreadable
        )


def signals(both: BothFiles, now: datetime, claims: Sequence[Held]) -> Signals:
    """Return the facts for a sweep's advice, from a snapshot of both files."""
    poll = Poll(now, models.MOST_POLLED, frozenset({"system"}))
    due = sum(1 for _ in messages.open_to(poll, both, messages.triggers(both)))
    tool = next(iter(both.rows(_TOOL)), None)
    times = [(head.id, instant(ack.status_changed)) for head, ack in claims]
    return Signals(
        due=due,
        until=poll.horizon.until,
        claims=tuple(moment for _, moment in times if moment is not None),
        unreadable=tuple(message_id for message_id, moment in times if moment is None),
        tool=None if tool is None else tool["current_tool"],
        tool_timeout=None if tool is None else _millis(tool["tool_declared_timeout_ms"]),
    )


def live_claims(both: BothFiles) -> list[Held]:
    """Return live claims, each with its message."""
    claimed = {ack.message_id: ack for ack in both.rows(messages.PROCESSING)}
    heads = both.rows_by_key(messages.HEADS_BY_ID, list(claimed))
    live = [head for head in heads if head.status not in models.ENDED]
    return [(head, claimed[head.id]) for head in live if messages.is_live(claimed[head.id], head)]


def _millis(value: int | None) -> timedelta | None:
    """Return the duration that the agent declared in milliseconds, limited to the valid range."""
    return None if value is None else timedelta(milliseconds=min(max(0, value), _LONGEST_TOOL))


# The report of a sweep that has nothing to write.


@dataclass(frozen=True)
class Quiet:
    """The facts of a mailbox with nothing to settle, store, expire or delete.

    ``holds`` is True if there are claims to free once the agent has stopped. ``kept`` are old folders whose messages
    exist.
    """

    sync: SyncReport
    holds: bool
    kept: frozenset[str]
    signals: Signals


def key_of(policy: StalePolicy) -> tuple[str, int | None]:
    """Return the key under which `Idle` caches a sweep's answer."""
    return "sweep", policy.max_context


def quiet_report(
    place: Place, found: Quiet, started: datetime | None, policy: StalePolicy, now: datetime
) -> SweepReport | None:
    """Return the report of a sweep that writes nothing, or None if the sweep has something to do."""
    if started is None and found.holds:
        return None
    if not found.kept.issuperset(creation.old_folders(place.path, now - LEFT_AFTER)):
        return None
    return SweepReport(
        group=place.group,
        session=place.session,
        sync=found.sync,
        advance=AdvanceReport(),
        release=ReleaseReport() if started is None else None,
        expired=0,
        tidied=0,
        assessment=found.signals.assessment(place, started, policy, now),
    )


def unchanged_report(idle: Idle, started: datetime | None, policy: StalePolicy, now: datetime) -> SweepReport | None:
    """Return the report of a sweep whose files are unchanged since an earlier one, or None if they must be opened."""
    found = idle.look(key_of(policy), now).answer
    return None if found is None or idle.place is None else quiet_report(idle.place, found, started, policy, now)
