"""Feed recorded agent events through the library, as a service would, and read the story back.

python examples/replay.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from lastlight_state import StateStore
from lastlight_state.cli.commands.demo.agent import Meter, segments
from lastlight_state.files.agent_log import Cwd
from lastlight_state.journal import JournalWriter
from lastlight_state.workflows import Gate, PhaseEntry, Trigger

SESSION = "architect-1"


def plan(store: StateStore, journal: JournalWriter, run_id: str) -> None:
    """The phase ``architect``: its events go to the log, reports of usage to the execution, milestones to the journal.

    The journal is flushed before the execution is finished, so that nothing of a finished task is missing in it.
    """
    (segment,) = segments("architect")
    execution = store.workflows.executions.start("issue-to-pr:architect", run_id=run_id, session_id=SESSION)
    journal.append(run_id, "node.started", {"nodeId": "architect"})
    meter = Meter()
    with store.agent_log.writer.open(place=Cwd(segment.cwd), session_id=SESSION, prompt=segment.prompt) as log:
        for event in segment.events:
            log.feed(event)
            if meter.feed(event):
                store.workflows.executions.update(execution.id, usage=meter.usage)
    store.workflows.executions.save_output(execution.id, segment.last_text, loop="plan")
    journal.append(run_id, "node.finished", {"nodeId": "architect", "turns": meter.usage.turns})
    journal.flush()
    store.workflows.executions.finish(execution.id, "succeeded", usage=meter.usage)


def main() -> None:
    """Plan, ask, answer, finish; then print what the store knows."""
    with TemporaryDirectory() as folder, StateStore.open(state_dir=Path(folder)) as store:
        workflows = store.workflows
        trigger = Trigger("acme/weather#42", type="webhook", owner="acme", repo="weather", issue_number=42)
        run = workflows.runs.create("issue-to-pr", trigger=trigger, phase="architect")
        with store.journal.writer() as journal:
            plan(store, journal, run.id)
        gate = Gate("post_architect", "Shall it be built?")
        asked = workflows.approvals.pause(run.id, gate, marker=PhaseEntry("architect", success=True))
        workflows.approvals.answer(asked.id, "approved", by="maria")
        workflows.runs.finish(run.id, "succeeded")
        for entry in store.maintenance.timeline.list(run.id):
            print(entry.at, entry.actor or "-", entry.text)
        for message in store.agent_log.reader.messages(SESSION, limit=4).messages:
            print(f"{message.role}: {str(message.content)[:100]!r}")


if __name__ == "__main__":
    main()
