"""A worker process: drives one run until it is paused or ended.

Start it as ``python -m lastlight_state.cli.commands.demo.worker RUN_ID`` with the database in the environment. It
prints its progress on stdout, one JSON object per line. It knows about earlier workers only what is stored.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NoReturn

from lastlight_state import codec
from lastlight_state.cli.commands.demo.agent import STEPS, Step, replay, segments
from lastlight_state.store import StateStore
from lastlight_state.workflows import Gate, PhaseEntry, WorkflowRun


def main() -> None:
    """Drive the run that the command line names."""
    (run_id,) = sys.argv[1:]
    with StateStore.open(migrate=False) as store:
        drive(store, run_id)


def drive(store: StateStore, run_id: str) -> None:
    """Carry out the steps that are not done yet, up to the next gate that has no answer."""
    interrupted = store.workflows.executions.interrupt(run_id, reason="the worker before this one died")
    if interrupted:
        tell(note=f"found {interrupted} execution left in flight by a dead worker, closed it as interrupted")
    for step in STEPS:
        if store.workflows.executions.phase_state(step.skill, run_id=run_id) != "done":
            perform(store, run_id, step)
        if step.gate is not None and not is_open(store, run_id, step.gate):
            ask(store, run_id, step)
            return
    store.workflows.runs.finish(run_id, "succeeded")
    tell(note="run succeeded")


def perform(store: StateStore, run_id: str, step: Step) -> None:
    """Execute a phase. If an earlier attempt was interrupted, continue that attempt's session."""
    executions = store.workflows.executions
    earlier = len(executions.list(run_id=run_id, skill=step.skill))
    segment = segments(step.phase)[earlier]
    session_id = f"{step.phase}-{run_id[-12:]}"
    execution = executions.start(step.skill, run_id=run_id, session_id=session_id)
    tell(note=f"{step.phase}: execution {execution.id}, attempt {earlier + 1}, session {session_id}")
    prompt = segment.prompt + earlier_output(store, run_id, step)
    replayed = replay(
        store, segment, session_id=session_id, prompt=prompt, execution_id=execution.id, stuck=partial(wait, step)
    )
    tell(note=f"{step.phase}: {replayed.events} events fed, {replayed.lines} lines logged")
    if step.keeps is not None:
        executions.save_output(execution.id, segment.last_text, loop=step.keeps)
    executions.finish(execution.id, "succeeded", usage=replayed.usage)
    if step.gate is None:
        store.workflows.runs.append_phase(run_id, entry_of(step))


def wait(step: Step) -> NoReturn:
    """Wait for a tool that never answers, until the parent process kills this one or closes its stdin."""
    tell(stuck=f"{step.phase}: a tool is at work")
    sys.stdin.read()
    sys.exit(1)


def earlier_output(store: StateStore, run_id: str, step: Step) -> str:
    """Return the output text of an earlier phase, for this phase's prompt.

    The run's scratch names the execution that has it.
    """
    if step.reads is None:
        return ""
    run: WorkflowRun = store.workflows.runs.get(run_id)
    text = store.workflows.executions.find_output(run.scratch[step.reads]["lastOutputExecutionId"])
    return f"\n\n{text}"


def is_open(store: StateStore, run_id: str, gate: str) -> bool:
    """True if somebody has approved at this gate of the run."""
    return any(
        found.gate == gate and found.status == "approved" for found in store.workflows.approvals.list_for_run(run_id)
    )


def ask(store: StateStore, run_id: str, step: Step) -> None:
    """Pause the run at the step's gate, which asks a person for approval."""
    gate = Gate(str(step.gate), f"Approve the outcome of {step.phase}?", requested_by="worker")
    store.workflows.approvals.pause(run_id, gate, marker=entry_of(step))
    tell(note=f"{step.phase}: paused at gate {step.gate}")


def entry_of(step: Step) -> PhaseEntry:
    """Return the phase's entry for the run's history."""
    return PhaseEntry(step.phase, success=True, summary=segments(step.phase)[-1].last_text.splitlines()[0])


def tell(**said: Any) -> None:
    """Send a message to the parent process."""
    sys.stdout.write(codec.dump_line(said).decode())
    sys.stdout.flush()


if __name__ == "__main__":
    main()
