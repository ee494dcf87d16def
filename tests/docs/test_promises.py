"""The table of once-ness speaks of every verb that writes, and of no other."""

from __future__ import annotations

import re
from typing import Any

from support.docs.pages import ROOT

from lastlight_state.aio import domains, journal, states, workflows
from lastlight_state.aio.forward import Face, Forward

FACES: dict[str, type[Face[Any]]] = {
    "runs": workflows.AsyncRuns,
    "executions": workflows.AsyncExecutions,
    "approvals": workflows.AsyncApprovals,
    "human_requests": workflows.AsyncHumanRequests,
    "overrides": workflows.AsyncOverrides,
    "workers": workflows.AsyncWorkers,
    "queue": workflows.AsyncQueue,
    "waits": workflows.AsyncWaits,
    "claims": workflows.AsyncClaims,
    "crons": domains.AsyncCrons,
    "fires": domains.AsyncFires,
    "sessions": domains.AsyncSessions,
    "messages": domains.AsyncMessages,
    "events": journal.AsyncEvents,
    "signals": journal.AsyncSignals,
    "frames": journal.AsyncFrames,
    "tool_calls": journal.AsyncToolCalls,
    "checkpoints": domains.AsyncCheckpoints,
    "states": states.AsyncStates,
    "sandboxes": journal.AsyncSandboxes,
}

#: Verbs that write and may wait, which are coroutines of their own.
WAITING = {"signals.try_take"}


def test_the_once_ness_of_every_verb_that_writes_is_stated() -> None:
    """packaging PT-22."""
    page = (ROOT / "docs" / "promises.md").read_text("utf-8")
    table = page.partition("## Once-ness of each verb")[2].partition("\n## ")[0]
    stated = set()
    for row in re.findall(r"^\| (.+?) \|", table, re.MULTILINE):
        repository = ""
        for name in re.findall(r"`([a-z_.]+)`", row):
            repository = name.partition(".")[0] if "." in name else repository
            stated.add(f"{repository}.{name.rpartition('.')[2]}")
    writing = {
        f"{repository}.{name}"
        for repository, face in FACES.items()
        for name, value in vars(face).items()
        if isinstance(value, Forward) and value.writes
    }
    assert stated == writing | WAITING
