"""``run``: cancels, pauses, resumes or restarts a run, as an operator does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from lastlight_state.cli import ids
from lastlight_state.cli.actors import BY, acting
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.consent import YES, at_terminal
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
@click.argument("verb", metavar="VERB", shell_complete=lambda *_: list(VERBS))
@BY
@click.option("--reason", metavar="TEXT", help="Why; by default that it was done from the command line.")
@YES
def run(call: Call, run_id: str, verb: str, by: str | None, reason: str | None, yes: bool) -> Answer:
    """Change what a run does. VERB is cancel, pause, resume or restart.

    A cancel ends the run now, whoever holds it. A run that a worker holds is not paused, because the worker would go
    on: cancel it, or let the worker pause it. A paused run with open questions is resumed by answering them. Of a
    pause neither name nor reason is kept. On a terminal, the cancel of a run that a worker holds is asked about first.
    """
    act = VERBS[valid.word("VERB", verb, VERBS)]
    told = f"{verb} from the command line" if reason is None else reason
    with working(call) as store:
        run_id = ids.whole(store, run_id, "run")
        before = store.workflows.runs.get(run_id).status
        holder = store.workflows.claims.find(run_id) if verb == "cancel" else None
        if holder is not None and holder.owner is not None:
            at_terminal(f"Run {run_id} is {before}, and {holder.owner} holds it. Cancel it?", yes=yes)
        done = act(store, run_id, acting(by), told)
    data: dict[str, Any] = {"before": before, "run": done}
    return Answer(data, lambda _: [_told(done.id, before, done.status)])


def _told(run_id: str, before: str, now: str) -> str:
    return f"run {run_id}: {before} -> {now}" if now != before else f"run {run_id}: was {now} already"
