"""``run``: cancels, pauses, resumes or restarts a run, as an operator does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from lastlight_state.cli.actors import BY, acting
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.opening import working
from lastlight_state.db import valid
from lastlight_state.store import StateStore
from lastlight_state.workflows import WorkflowRun

VERBS: Mapping[str, Callable[[StateStore, str, str, str], WorkflowRun]] = {
    "cancel": lambda store, run_id, by, why: store.workflows.runs.cancel(run_id, by=by, reason=why),
    "pause": lambda store, run_id, _by, _why: store.workflows.waits.pause(run_id),
    "resume": lambda store, run_id, by, why: store.workflows.waits.resume(run_id, by=by, reason=why),
    "restart": lambda store, run_id, by, why: store.workflows.runs.restart(run_id, by=by, reason=why),
}


@command("run")
@click.argument("run_id", metavar="ID")
@click.argument("verb", metavar="VERB")
@BY
@click.option("--reason", metavar="TEXT", help="Why; by default that it was done from the command line.")
def run(call: Call, run_id: str, verb: str, by: str | None, reason: str | None) -> Answer:
    """Change what a run does. VERB is cancel, pause, resume or restart.

    A cancel ends the run now, whoever holds it. A run that a worker holds is not paused, because the worker would go
    on: cancel it, or let the worker pause it. A paused run with open questions is resumed by answering them. Of a
    pause neither name nor reason is kept.
    """
    act = VERBS[valid.word("VERB", verb, VERBS)]
    told = f"{verb} from the command line" if reason is None else reason
    with working(call) as store:
        before = store.workflows.runs.get(run_id).status
        done = act(store, run_id, acting(by), told)
    data: dict[str, Any] = {"before": before, "run": done}
    return Answer(data, lambda _: [f"run {done.id}: {before} -> {done.status}"])
