"""One process that works for all tenants: a worker runs only where there is something to do.

A thousand workers that each look for work would ask a thousand questions a second; here ``due`` asks for all tenants
at once. The URL of a Postgres database follows: ``python examples/tenants.py postgresql://localhost/agents``.
"""

import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from lastlight_state import Tenants
from lastlight_state.worker import Job, Worker

LOOK_SECONDS = 1.0


def serve(tenants: Tenants, name: str) -> None:
    """Work for one tenant until it has nothing more to do."""
    with tenants.store(name) as store:
        worker = Worker(store)

        @worker.workflow("review", cap=1)
        def review(job: Job) -> None:
            job.phase("look", lambda: f"looked at {job.run.id} of {name}")

        working = threading.Thread(target=worker.run)
        working.start()
        idle = 0  # looks in a row in which there was something to do, and the worker could not do it
        while idle < 10 and (worker.health().run_ids or tenants.due(["review"], only=[name])):
            idle = 0 if worker.health().run_ids else idle + 1
            working.join(LOOK_SECONDS / 10)
        worker.stop()
        working.join()


def serve_all(tenants: Tenants, stopping: threading.Event, workers: int = 8) -> None:
    """Serve every tenant that has something to do, so many at a time, until ``stopping`` is set."""
    busy: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(workers) as pool:
        while not stopping.is_set():
            for name in tenants.due(["review"]):
                if name not in busy or busy[name].done():
                    busy[name] = pool.submit(serve, tenants, name)
            stopping.wait(LOOK_SECONDS)


if __name__ == "__main__":
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    all_tenants = Tenants.open(sys.argv[1])
    serve_all(all_tenants, ending)
    all_tenants.close()
