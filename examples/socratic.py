"""The Socratic loop: an agent asks until its task is clear, a person answers, and no crash asks or pays twice.

python examples/socratic.py [URL]
"""

import sys
from functools import partial

from lastlight_state import StateStore
from lastlight_state.worker import Job, Turn, Worker
from lastlight_state.workflows import RunningExecution, Usage


def think(task: str, turn: Turn, execution: RunningExecution) -> None:
    """Think about the task once more. Stands for a call of a model."""
    replies = [gate.response for gate in turn.answers()]
    doubt = "nothing is open" if "that is all" in replies else f"what follows from {[task, *replies][-1]!r}?"
    execution.session_id = f"{turn.run.id}-{turn.number}"
    execution.usage = Usage(input_tokens=900, output_tokens=120, cost_usd=0.0041)
    execution.output = f"{turn.last_output() or task}\n{len(replies)}: {doubt}"  # the bridge to the next turn


with StateStore.open(*sys.argv[1:]) as store:
    worker = Worker(store)

    @worker.workflow("clarify", input=dict)
    def clarify(job: Job) -> None:
        """Ask, answer, until it is clear; then build."""
        for turn in job.loop("socratic", limit=20):
            text = str(turn.phase("think", partial(think, job.input["task"], turn)))
            if text.endswith("nothing is open"):
                job.phase("build", lambda text=text: {"notes": len(text)})
                break
            turn.ask("reply", text.splitlines()[-1], kind="reply")

    worker.run()
