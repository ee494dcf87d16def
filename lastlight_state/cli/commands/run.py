"""``run``: cancels, pauses, resumes, restarts or releases a run, on an operator's behalf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from lastlight_state.cli import opening
from lastlight_state.cli.arguments import BY, YES, acting_person, at_terminal
from lastlight_state.cli.opening import writable_store
from lastlight_state.cli.output import Answer, Call, command
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows import WorkflowRun
from lastlight_state.workflows.operators import take_away


class Order(NamedTuple):
    """The arguments of an operator's order for a run: by whom, the reason, and the number of restarts."""

    by: str
    reason: str
    most: int | None


def _release(store: StateStore, run_id: str, said: Order) -> WorkflowRun:
    """Take the claim from its holder and release the run. The former holder's writes are refused from now on."""
    take_away(store.workflows.claims, run_id, by=said.by, now=SYSTEM_CLOCK.now())
    return store.workflows.runs.get(run_id)


def _allow_restarts(store: StateStore, run_id: str, said: Order) -> WorkflowRun:
    if said.most is None:
        raise InvalidValue("--max", "must be given: how many restarts the run may have in all")
    return store.workflows.runs.allow_restarts(run_id, said.most, by=said.by, reason=said.reason)


VERBS: Mapping[str, Callable[[StateStore, str, Order], WorkflowRun]] = {
    "cancel": lambda store, run_id, said: store.workflows.runs.cancel(run_id, by=said.by, reason=said.reason),
    "pause": lambda store, run_id, said: store.workflows.waits.pause(run_id, by=said.by, reason=said.reason),
    "resume": lambda store, run_id, said: store.workflows.waits.resume(run_id, by=said.by, reason=said.reason),
    "restart": lambda store, run_id, said: store.workflows.runs.restart(run_id, by=said.by, reason=said.reason),
    "release": _release,
    "allow-restarts": _allow_restarts,
}
#: Verbs that end a worker's claim, each with the question for confirmation.
_ENDS_CLAIM = {"cancel": "Cancel it?", "release": "Take it away?"}


@command("run")
@click.argument("run_id", metavar="ID")
@click.argument("verb", metavar="VERB", shell_complete=lambda *_: list(VERBS))
@BY
@click.option("--reason", metavar="TEXT", help="Why; by default that it was done from the command line.")
@click.option("--max", "most", metavar="N", type=int, help="With allow-restarts: how many restarts in all, 0 to 100.")
@YES
def run(call: Call, run_id: str, verb: str, by: str | None, reason: str | None, most: int | None, yes: bool) -> Answer:
    """Change what a run does. VERB is cancel, pause, resume, restart, release or allow-restarts.

    cancel ends the run now, even if a worker holds it. release takes the run from the worker that holds it, without
    counting a restart, so that another worker may take it at once: use it if a worker hangs. allow-restarts lets a run
    be taken again after its limit.

    A run that a worker holds cannot be paused, because the worker would go on: cancel it, or let the worker pause it. A
    paused run with open questions is resumed by answering them. No reason is stored for a release. On a terminal, you
    are asked before a worker's claim is ended.
    """
    act = VERBS[valid.word("VERB", verb, VERBS)]
    if most is not None and verb != "allow-restarts":
        raise InvalidValue("--max", "is for allow-restarts alone")
    told = f"{verb} from the command line" if reason is None else reason
    with writable_store(call) as store:
        run_id = opening.whole(store, run_id, "run")
        before = store.workflows.runs.get(run_id)
        holder = store.workflows.claims.find(run_id) if verb in _ENDS_CLAIM else None
        if holder is not None and holder.owner is not None:
            held = f"Run {run_id} is {before.status}, and {holder.owner} holds it."
            at_terminal(f"{held} {_ENDS_CLAIM[verb]}", yes=yes)
        done = act(store, run_id, Order(acting_person(by), told, most))
    data: dict[str, Any] = {"before": before.status, "run": done}
    return Answer(data, lambda _: [_result_line(verb, before, done)])


def _result_line(verb: str, before: WorkflowRun, now: WorkflowRun) -> str:
    if verb == "release":
        return f"run {now.id}: released, {now.status}"
    if verb == "allow-restarts":
        return f"run {now.id}: {now.restart_count} of {now.max_restarts} restarts used (before: {before.max_restarts})"
    return (
        f"run {now.id}: {before.status} -> {now.status}"
        if now.status != before.status
        else (f"run {now.id}: was {before.status} already")
    )
