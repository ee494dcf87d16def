"""An engine of typed tasks: a cache, a person's choice, a signal. Kill it at any time, and start it again."""

import sys

from pydantic import BaseModel

from lastlight_state import StateStore
from lastlight_state.outputs import CacheKey
from lastlight_state.worker import Job, Worker
from lastlight_state.workflows import NodeRef, Question


class Analysis(BaseModel):
    """What the first task produces."""

    risk: int


with StateStore.open(*sys.argv[1:], migrate=True) as store:
    analyses, worker = store.outputs.define("analysis", Analysis), Worker(store)

    @worker.workflow("issue-to-pr", input=dict)
    def issue_to_pr(job: Job) -> None:
        """Analyse once for all runs of an issue, ask how to ship, wait for the merge."""

        def analyse() -> Analysis:
            key = CacheKey("issue-to-pr", "analyse", basis=job.input)
            if found := store.outputs.cache.find(key, analyses):
                return found.value
            return store.outputs.cache.ensure(key, analyses, Analysis(risk=len(job.input["title"]))).value

        analysis = job.phase("analyse", analyse, returns=Analysis)
        store.outputs.results.put(analyses, job.run.id, "analyse", analysis)
        how = job.ask(Question(NodeRef("ship"), "select", f"Risk {analysis.risk}: how?", options=["squash", "rebase"]))
        job.phase("ship", lambda: f"shipped by {how.response}")
        merged = job.wait_for("merged")
        job.phase("close", lambda: merged and merged.payload)

    worker.run()
