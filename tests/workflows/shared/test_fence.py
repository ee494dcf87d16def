"""Writes beside executions that belong to whoever holds the run: they wait for a takeover, and lose."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.workflows.steps import Raw, started, wait_until_blocked

from lastlight_state.errors import ClaimLost
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim, NodeRef

NODE = NodeRef("a")
WRITES: dict[str, Callable[[Any, str, Claim], Any]] = {
    "put a node": lambda on, run, claim: on.nodes.put(run, NODE, state="running", claim=claim),
    "update a node": lambda on, run, claim: on.nodes.update(
        run, NODE, state="running", expected="pending", claim=claim
    ),
    "put a loop": lambda on, run, claim: on.loops.put(run, "fix", iteration=7, claim=claim),
    "advance a loop": lambda on, run, claim: on.loops.advance(run, "fix", expected=1, claim=claim),
    "advance a new loop": lambda on, run, claim: on.loops.advance(run, "new", expected=0, claim=claim),
    "finish a loop": lambda on, run, claim: on.loops.finish(run, "fix", claim=claim),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_write_waits_for_a_takeover_that_is_being_committed(
    database: Database, every_backend: StateStore, raw: Raw, write: Callable[[Any, str, Claim], Any]
) -> None:
    """workflows W-10, W-14: the fence is no earlier read, so the write loses when the takeover commits."""
    workflows, run = every_backend.workflows, started(every_backend)
    old = raw.hold(run.id)
    workflows.nodes.put(run.id, NODE, claim=old)
    workflows.loops.put(run.id, "fix", iteration=1, claim=old)
    watch = Raw(database)
    raw("BEGIN IMMEDIATE" if raw.name == "sqlite" else "BEGIN")
    raw.hold(run.id, "worker-2")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, workflows, run.id, old)
        wait_until_blocked(watch)
        raw("COMMIT")
        with pytest.raises(ClaimLost):
            writing.result(30)
    assert workflows.nodes.get(run.id, NODE).state == "pending"
    [loop] = workflows.loops.list(run.id).items
    assert (loop.iteration, loop.done) == (1, False)
