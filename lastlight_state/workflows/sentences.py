"""Sentences about runs: what a run waits for, what is wrong with it, and what helps. No database access.

The command line and the inspector show these sentences instead of the stored codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from lastlight_state.clock import ago, duration_text

if TYPE_CHECKING:
    from lastlight_state.workflows.health.state import Blocked, RunState


class Trouble(NamedTuple):
    """A problem of a run in words, and what a person may do about it.

    ``verb`` is the verb of `lastlight-state run ID` that helps, or None if no verb does.
    """

    what: str
    todo: str
    verb: str | None = None


#: The sentence for each word of `RunState.unhealthy`, the most informative word first.
TROUBLES: Mapping[str, Trouble] = {
    "restart_limit": Trouble(
        "its worker is gone, and it has used up its restarts", "allow more, or cancel it", "allow-restarts --max N"
    ),
    "cancel_ignored": Trouble("it was asked to stop and goes on", "cancel it, whoever holds it", "cancel"),
    "lease_expired": Trouble("its worker is gone", "the next free worker takes it; look whether one serves it"),
    "never_claimed": Trouble("no worker has ever held it", "the next free worker takes it; look whether one serves it"),
    "no_worker": Trouble("no worker serves it", "start one, or mend the name of the workflow"),
    "gate_expired": Trouble("nobody answered a question in time", "a worker ends it; look whether one serves it"),
    "stuck_paused": Trouble("it is paused, and nothing that is stored will wake it", "resume it", "resume"),
    "deadline_passed": Trouble("its deadline is over", "wait, or cancel it", "cancel"),
    "execution_silent": Trouble(
        "its execution has shown no sign of life for 15 minutes", "if its worker hangs, take the run away", "release"
    ),
}

#: The text for each reason of a transition, for a run of which nothing more is known.
REASONS: Mapping[str, str] = {
    "run.created": "began",
    "run.finished": "ended",
    "run.cancelled": "cancelled",
    "run.restarted": "begun again by a person",
    "run.admitted": "left the queue",
    "run.requeued": "went back to the queue",
    "run.released": "given back",
    "run.paused.gate": "waits for an answer",
    "run.paused.timer": "waits for a time",
    "run.paused.signal": "waits for a signal",
    "run.paused.operator": "paused by a person",
    "run.resumed.gate": "goes on after an answer",
    "run.resumed.timer": "goes on, its time has come",
    "run.resumed.signal": "goes on after a signal",
    "run.resumed.operator": "resumed by a person",
    "claim.taken_over": "taken over from a worker that is gone",
    "claim.gave_up": "given up: no restart is left",
    "claim.released": "given back by its worker",
    "claim.transferred": "handed to another worker",
    "cancel.requested": "asked to stop",
    "queue.expired": "its time in the queue was over",
    "gate.rejected": "a question was rejected",
    "gate.expired": "a question was not answered in time",
    "restarts.allowed": "more restarts allowed",
}


def reason_text(reason: str | None) -> str:
    """Return the text for a stored reason, or the reason itself if this library does not know it. Empty for None."""
    return "" if reason is None else REASONS.get(reason, reason)


def change_text(before: str | None, after: str, reason: str) -> str:
    """Return the text for a transition of a run, such as ``began``, ``waits for an answer`` or ``failed``."""
    if reason not in REASONS:
        told = after if before is None else f"{before} to {after}"
        return reason if before == after else f"{told} ({reason})"
    if reason == "run.created" and after == "queued":
        return "began in the queue"
    is_end = after in ("succeeded", "failed", "cancelled") and before != after
    if is_end and reason in ("run.finished", "run.cancelled"):
        return after
    return f"{after}: {REASONS[reason]}" if is_end else REASONS[reason]


def waits_text(blocked: Blocked, now: datetime | None) -> str:
    """Return a text with what a run waits for, and since when: ``waits for an answer to *ship*, asked 3 h ago``.

    Without ``now`` the text has no durations, so that it does not change with time.
    """
    if blocked.kind in ("approval", "human_request"):
        return _asked_text(blocked, now)
    told = {
        "timer": "waits for its time",
        "signal": f"waits for the signal *{blocked.id}*" + (f" of {blocked.label}" if blocked.label else ""),
        "operator": "paused by a person",
        "queue": "waits in the queue",
        "workflow_disabled": f"waits, because the workflow *{blocked.id}* is switched off",
        "worker": "waits for a worker" + (f": {blocked.label}" if blocked.label else ""),
    }
    lasting = (
        "" if now is None or blocked.since is None else f", for {duration_text(max(now - blocked.since, timedelta()))}"
    )
    until = "" if blocked.until is None else f", until {blocked.until:%Y-%m-%d %H:%M} UTC"
    return f"{told.get(blocked.kind, f'waits for {blocked.kind}')}{lasting}{until}"


def _asked_text(blocked: Blocked, now: datetime | None) -> str:
    name = blocked.label or (blocked.node.node_id if blocked.node is not None else None)
    more = f" and {blocked.count - 1} more" if blocked.count > 1 else ""
    asked = "" if now is None or blocked.since is None else f", asked {ago(blocked.since, now)}"
    expires = "" if now is None or blocked.until is None else f", expires {ago(blocked.until, now)}"
    return f"waits for an answer{f' to *{name}*' if name else ''}{more}{asked}{expires}"


def troubles(words: Sequence[str]) -> list[Trouble]:
    """Return the troubles for these words of `RunState.unhealthy`, the most informative first."""
    known = [trouble for word, trouble in TROUBLES.items() if word in words]
    if "restart_limit" in words:
        known = [trouble for trouble in known if trouble is not TROUBLES["lease_expired"]]
    return known + [Trouble(word, "look at it") for word in words if word not in TROUBLES]


def trouble_text(words: Sequence[str]) -> str:
    """Return the problems of a run as one text, for these words of `RunState.unhealthy`."""
    return "; ".join(trouble.what for trouble in troubles(words))


def state_text(state: RunState, *, timed: bool = True) -> str:
    """Return what a live run waits for and what is wrong with it. Empty for a running run without a problem.

    Without ``timed`` the text has no durations.
    """
    parts = [] if state.blocked is None else [waits_text(state.blocked, state.computed_at if timed else None)]
    parts += [trouble.what for trouble in troubles([word for word in state.unhealthy if word != "no_worker"])]
    return "; ".join(parts)


def story_text(
    status: str, reason: str | None, error: str | None, state: RunState | None, *, timed: bool = True
) -> str:
    """Return one line about a run: what it waits for or what is wrong, its error, or the reason of its status.

    The line is empty if the status needs no explanation.
    """
    told = "" if state is None else state_text(state, timed=timed)
    if told or error:
        return told or error or ""
    return "" if status in ("running", "queued", "succeeded", "cancelled", "failed") else reason_text(reason)
