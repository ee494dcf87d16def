"""The web server: what a webhook brings is stored with its run, or neither is. ``service`` is the page's."""

import asyncio
import os
import signal
import threading
from contextlib import asynccontextmanager
from typing import Annotated

import service
from fastapi import Body, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from models import Shipment
from sqlalchemy import create_engine, event, make_url, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.models import WorkflowRunModel
from lastlight_state.workflows import RunOptions, Trigger


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Open the engines and the store in each server process, and end the streams at SIGTERM."""
    url = make_url(os.environ["DATABASE_URL"])
    state, is_sqlite = app.state, url.get_backend_name() == "sqlite"
    state.engine = create_engine(url)
    if is_sqlite:
        event.listen(state.engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON"))
    state.async_engine = create_async_engine(url.set(drivername="sqlite+aiosqlite") if is_sqlite else url)
    state.store = StateStore.open(engine=state.engine)
    state.async_store = AsyncStateStore(state.store)
    state.stop = threading.Event()
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

    def stopping(number, frame):
        loop.call_soon_threadsafe(state.stop.set)
        before(number, frame)

    if threading.current_thread() is threading.main_thread():  # a test's client has a thread of its own
        signal.signal(signal.SIGTERM, stopping)
    yield
    await state.async_store.close()
    await state.async_engine.dispose()
    state.engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/hooks/ship")
async def receive(request: Request, payload: dict, x_delivery: Annotated[str, Header()]):
    """Store a shipment and its run, once for each delivery: an asynchronous route."""
    state = request.app.state
    joining = state.async_store.transaction
    async with AsyncSession(state.async_engine) as session, session.begin(), joining(connection=session) as tx:
        made = await service.receive(tx, x_delivery, payload)
        if made["created"]:
            session.add(Shipment(pull=payload["pull"], repo=payload["repo"], run_id=made["run"]))
    return made


@app.post("/shipments/{pull}")
def ship(request: Request, pull: str, repo: Annotated[str, Body()], changed: Annotated[list[str], Body()]):
    """Ship something by hand: the same from a route that runs in a thread."""
    state = request.app.state
    with Session(state.engine) as session, session.begin(), state.store.transaction(connection=session) as tx:
        trigger, context = Trigger(pull, type="cli", repo=repo), {"changed": changed}
        options = RunOptions(offered=True)
        run = tx.workflows.runs.create("ship", trigger=trigger, phase="plan", context=context, options=options)
        session.add(Shipment(pull=pull, repo=repo, run_id=run.id))
    return {"run": run.id}


@app.get("/shipments")
def shipments(request: Request):
    """Show all shipments with the status of their runs: one query over both tables."""
    shown = select(Shipment.pull, Shipment.state, WorkflowRunModel.status).join(Shipment.run).order_by(Shipment.pull)
    with Session(request.app.state.engine) as session:
        return [row._asdict() for row in session.execute(shown)]


@app.get("/gates")
async def waiting(request: Request):
    """Show what waits for a person."""
    return await service.waiting(request.app.state.async_store)


@app.post("/gates/{gate_id}")
async def answer(request: Request, gate_id: str, decision: Annotated[str, Body()], user: Annotated[str, Body()]):
    """Take an answer: the first one wins."""
    status, body = await service.answer(request.app.state.async_store, gate_id, decision, user)
    return JSONResponse(body, status)


@app.get("/runs/{run_id}/events")
async def events(request: Request, run_id: str, last_event_id: Annotated[str | None, Header()] = None):
    """Stream what happens to a run, until it has ended."""
    state = request.app.state
    story = service.stream(state.async_store, run_id, last_event_id, state.stop)
    return StreamingResponse(story, media_type="text/event-stream")
