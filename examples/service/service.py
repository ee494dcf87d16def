import threading
from collections.abc import AsyncIterator

from lastlight_state import AlreadyAnswered, AsyncStateStore, Conflict, NotFound
from lastlight_state.workflows import RunOptions, Trigger


async def receive(store: AsyncStateStore, delivery: str, payload: dict) -> dict:
    """Store a run for a webhook: one for each delivery, and any worker may take it."""
    trigger = Trigger(payload["pull"], type="webhook", repo=payload["repo"], actor=payload["sender"])
    options = RunOptions(offered=True)
    made = await store.workflows.runs.ensure(
        delivery, "ship", trigger=trigger, phase="plan", context=payload, options=options
    )
    return {"run": made.run.id, "created": made.created}


async def waiting(store: AsyncStateStore, run_id: str | None = None) -> list[dict]:
    """Return the gates that wait for a person, with their whole texts."""
    return [gate.model_dump(mode="json") for gate in await store.workflows.approvals.list_pending(run_id=run_id)]


async def answer(store: AsyncStateStore, gate_id: str, decision: str, user: str) -> tuple[int, dict]:
    """Answer a gate. Returns a status of HTTP and a body."""
    try:
        answered = await store.workflows.approvals.answer(gate_id, decision, by=user)
    except NotFound:
        return 404, {"error": "not_found"}
    except AlreadyAnswered as error:
        return 409, {"error": error.code, "by": error.winner.answered_by, "status": error.winner.status}
    except Conflict as error:  # it has expired, or was withdrawn
        return 409, {"error": error.code}
    return 200, {"run": answered.run.id, "status": answered.run.status}


async def stream(store: AsyncStateStore, run_id: str, after: str | None, stop: threading.Event) -> AsyncIterator[str]:
    """Yield what happens to a run as server-sent events, until the run has ended or the server stops."""
    ended = ""
    while not (ended or stop.is_set()):
        run = await store.workflows.runs.get(run_id)
        ended = run.status if run.finished_at is not None else ""
        follow = store.maintenance.timeline.follow
        async for entry in follow(run_id, after=after, until_end=True, idle_timeout=15, stop=stop):
            after = entry.cursor
            yield f"id: {after}\nevent: {entry.source}\ndata: {entry.model_dump_json()}\n\n"
        yield ": still here\n\n"  # proxies close a connection that is silent
    if ended:
        yield f"event: end\ndata: {ended}\n\n"
