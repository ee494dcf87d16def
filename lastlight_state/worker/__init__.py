"""Workers: processes that wait for runs of their workflows, call the function registered for each, and end cleanly.

The function that you register decides what a phase does and which phase comes next. The worker itself is a loop over
public calls of the store::

    worker = Worker(store)

    @worker.workflow("review")
    def review(job):
        plan = job.phase("plan", lambda: make_plan(job.run.context))
        if job.ask("ship", "Ship it?").status == "approved":
            job.phase("ship", lambda: ship(plan))

    worker.run()
"""

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.worker.calls import RunFailed as RunFailed
    from lastlight_state.worker.common import Health as Health
    from lastlight_state.worker.retry import Retry as Retry
    from lastlight_state.worker.tasks import AsyncJob as AsyncJob, AsyncTurn as AsyncTurn, AsyncWorker as AsyncWorker
    from lastlight_state.worker.threads import Job as Job, Turn as Turn, Worker as Worker

public(
    globals(),
    {
        "common": "Health",
        "retry": "Retry",
        "calls": "RunFailed",
        "tasks": "AsyncJob AsyncTurn AsyncWorker",
        "threads": "Job Turn Worker",
    },
)
