"""Runs: a list with filters, and for each run its history on one time axis."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import urlencode

from lastlight_state import Page as Found, View as Moment
from lastlight_state.errors import NotFound, StateError
from lastlight_state.inspector import pictures
from lastlight_state.inspector.page import MOST_ROWS, Ask, Moved, Page, View, status_of, values
from lastlight_state.inspector.pictures import Axis, Bar, Mark, Step
from lastlight_state.inspector.rendering import segment
from lastlight_state.inspector.stories import told_run, told_runs
from lastlight_state.keys import prefix_end
from lastlight_state.workflows import RunFilter, RunSummary, Totals, UsageTotals, WorkflowRun
from lastlight_state.workflows.operators import take_away
from lastlight_state.workflows.sentences import change_text
from lastlight_state.workflows.words import RUN_STATUSES, RunStatus

page = Page("runs", "Runs", "/runs", "r")

#: Most executions, events and other items on a run's axis.
MOST = 200
#: The actions for a single run, and for several runs at once.
VERBS = ("cancel", "pause", "resume", "retry", "release")
SEVERAL = ("retry", "cancel")
#: Most workflows that are searched for runs of a trigger.
MOST_NAMES = 50
_BEGINNING_SO = "SELECT id FROM workflow_runs WHERE id >= :least AND id < :end ORDER BY id LIMIT 20"
#: How far back error texts are searched if no filter is given. Every execution since then is read.
SEARCHED = timedelta(days=30)


@page.look()
def run_list(ask: Ask, problems: Sequence[tuple[str, StateError]] = ()) -> View:
    """Show a page of runs. A search text finds executions by error or skill, or runs by id or trigger."""
    which = RunFilter(
        statuses=cast("list[RunStatus]", ask.texts("status")) or None,  # an unknown status is refused below
        workflow_names=ask.texts("workflow") or None,
        repo=ask.text("repo"),
        since=ask.moment("since"),
        until=ask.moment("until"),
    )
    person = ask.text("person")
    with ask.store.view() as moment:
        w, now = moment.workflows, ask.clock.now()
        data: dict[str, Any] = {"workflows": w.lookups.names().items, "statuses": RUN_STATUSES}
        data |= {"runs": None, "count": None, "errors": None, "found": None}
        if text := ask.text("error"):
            data["errors"] = w.lookups.search_errors(text, since=which.since or _midnight(now - SEARCHED), **ask.part)
        elif text := ask.text("find"):
            data["found"] = _find_runs(ask, moment, text)
        else:
            filters = {field.name: getattr(which, field.name) for field in fields(which) if field.name != "trigger_id"}
            page_of_runs = w.runs.list(**filters, triggered_by=person, **ask.part)
            data["count"] = w.lookups.count(which) if person is None else None  # by person alone it would read all
            data["runs"] = {**page_of_runs.model_dump(), "items": told_runs(moment, page_of_runs.items, now)}
    if problems:
        data["problems"] = [{"run_id": run_id, "text": str(error)} for run_id, error in problems]
    more = {"query_text": urlencode(ask.query, doseq=True), "verbs": SEVERAL}
    return View("runs.html", data, "Runs", more)


def _midnight(moment: datetime) -> datetime:
    """Return the UTC midnight before a time, so that all pages of a search start at the same time."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _find_runs(ask: Ask, moment: Moment, text: str) -> list[dict[str, Any]]:
    """Return the runs whose id begins with the text, and each workflow's newest run for the trigger with this id."""
    w = moment.workflows
    rows = moment.outputs.query.rows(_BEGINNING_SO, {"least": text, "end": prefix_end(text)}).rows
    newest = w.lookups.latest_by_workflow(text, w.lookups.names(limit=MOST_NAMES).items)
    found: dict[str, RunSummary] = {run.id: run for run in newest.values()}
    for (run_id,) in rows:
        found.setdefault(str(run_id), _summary(w.runs.get(str(run_id)), w.usage.for_run(str(run_id))))
    return told_runs(moment, found.values(), ask.clock.now())


def _summary(run: WorkflowRun, usage: UsageTotals) -> RunSummary:
    """Return a run's record as a summary, as lists show it."""
    totals = {name: getattr(usage, name) for name in Totals.model_fields}
    values = {name: getattr(run, name) for name in RunSummary.model_fields if name != "totals"}
    return RunSummary(**values, totals=Totals(**totals))


@page.act("")
def act_on_several(ask: Ask) -> View | Moved:
    """Carry out the same action on several runs, one by one. Runs that refused it are listed with their errors."""
    act = _verb(ask, ask.form_value("verb") or "", SEVERAL)
    problems: list[tuple[str, StateError]] = []
    for run_id in ask.form.get("run", ())[:MOST_ROWS]:
        try:
            act(run_id)
        except StateError as error:
            problems.append((run_id, error))
    back = ask.form_value("back") or ""
    return run_list(replace(ask, query=values(back)), problems) if problems else Moved(f"/runs?{back}")


def _mark(ask: Ask) -> Hashable:
    """Return a value that changes with the run, its state, newest execution and journal, and every 30 seconds."""
    run_id = ask.path["run_id"]
    with ask.store.view() as moment:
        run = moment.workflows.runs.get(run_id)
        newest = moment.workflows.executions.list(run_id=run_id, limit=1).items
        seqs = moment.journal.events.latest_seq(run_id), moment.journal.signals.latest_seq(run_id)
        records = run, moment.workflows.health.get_state(run_id), *newest
    half_minute = int(ask.clock.now().timestamp() // 30)  # for older executions, nodes, tool calls, inputs and outputs
    return *(one.model_dump_json() for one in records), seqs, half_minute


@page.look("/{run_id}", live=True, mark=_mark)
def run_page(ask: Ask, problem: StateError | None = None) -> View:
    """Show a run with everything that belongs to it."""
    run_id = ask.path["run_id"]
    with ask.store.view() as moment:
        w, run = moment.workflows, moment.workflows.runs.get(run_id)
        state = w.health.get_state(run_id)
        data: dict[str, Any] = {
            "run": run,
            "state": state,
            "holder": w.claims.find(run_id),
            "usage": w.usage.for_run(run_id),
            "transitions": w.lookups.list_transitions(run_id, order="oldest", limit=MOST),
            "executions": w.executions.list(run_id=run_id, limit=MOST),
            "nodes": w.nodes.list(run_id, limit=MOST),
            "gates": w.approvals.list_for_run(run_id, limit=MOST),
            "requests": w.human_requests.list_for_run(run_id, limit=MOST),
            "signals": moment.journal.signals.list(run_id, limit=MOST),
            "events": moment.journal.events.list(run_id, limit=MOST),
            "tool_calls": moment.journal.tool_calls.list(run_id, limit=MOST),
            "frames": moment.journal.frames.list(run_id),
            "ancestors": w.lookups.list_ancestors(run_id, limit=20)[1:],
            "children": w.lookups.list_children(run_id),
            **_tables(moment, run_id),
            "log": _has_log(ask, run_id),
            "told": told_run(run, state, w.lookups.get_errors([run_id]).get(run_id), ask.clock.now()),
        }
    more: dict[str, Any] = {
        "axis": _axis(ask, run, data),
        "order": pictures.order(list(_steps(data))),
        "problem": problem,
        "filled": {},
    }
    if problem is not None:
        data["problem"] = {"code": problem.code, "text": str(problem)}
    return View("run.html", data, f"Run {run_id}", more, 200 if problem is None else status_of(problem))


@page.act("/{run_id}/{verb}")
def act(ask: Ask) -> View | Moved:
    """Cancel, pause, resume, retry or release a run, then redirect to it. If refused, show the run with the error."""
    run_id = ask.path["run_id"]
    do = _verb(ask, ask.path["verb"], VERBS)
    try:
        do(run_id)
    except StateError as problem:
        return run_page(ask, problem)
    return Moved(f"/runs/{segment(run_id)}")


def _verb(ask: Ask, verb: str, allowed: Sequence[str]) -> Callable[[str], object]:
    """Return a function that carries out a verb on a run, in the person's name.

    Raises `NotFound` for an unknown verb.
    """
    by, reason, w = ask.person or "", ask.form_value("reason") or "from the inspector", ask.store.workflows
    verbs: dict[str, Callable[[str], object]] = {
        "cancel": lambda run_id: w.runs.cancel(run_id, by=by, reason=reason),
        "pause": lambda run_id: w.waits.pause(run_id, by=by, reason=reason),
        "resume": lambda run_id: w.waits.resume(run_id, by=by, reason=reason),
        "retry": lambda run_id: w.runs.restart(run_id, by=by, reason=reason),
        "release": lambda run_id: take_away(w.claims, run_id, by=by, now=ask.clock.now()),
    }
    if verb not in allowed:
        raise NotFound("verb", verb)
    return verbs[verb]


@page.look("/{run_id}/timeline", live=True, mark=_mark, takes="limit page_token")
def timeline(ask: Ask) -> View:
    """Show a page of everything that happened to a run, one line per entry."""
    run_id = ask.path["run_id"]
    found = ask.store.maintenance.timeline.list(run_id, **ask.part)
    return View("timeline.html", {"run_id": run_id, "timeline": found}, f"Timeline of {run_id}")


@page.look("/{run_id}/executions/{execution_id}")
def execution(ask: Ask) -> View:
    """Show an execution of a run with its output text."""
    w, key = ask.store.workflows, ask.path["execution_id"]
    data = {"execution": w.executions.get(key), "output": w.executions.find_output(key)}
    return View("execution.html", data, f"Execution {key}")


@page.look("/{run_id}/frames/{frame_no}")
def frame(ask: Ask) -> View:
    """Show a frame of a run, and its changes since the previous frame."""
    run_id, number = ask.path["run_id"], _frame_no(ask)
    frames = ask.store.journal.frames
    newest, found = frames.find_latest(run_id), frames.get(run_id, number)
    try:
        changes = frames.diff(run_id, number - 1, number) if number else None
    except NotFound:  # the previous frame is not stored
        changes = None
    data = {
        "run_id": run_id,
        "frame": found,
        "changes": changes,
        "last": None if newest is None else newest.frame_no,
    }
    return View("frame.html", data, f"Frame {number} of {run_id}")


def _frame_no(ask: Ask) -> int:
    text = ask.path["frame_no"]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _has_log(ask: Ask, run_id: str) -> bool:
    """True if the store has a run log under the run's id."""
    try:
        return ask.store.run_log.runs.find(run_id) is not None
    except StateError:  # the id cannot name a file, or the file is unreadable
        return False


def _tables(moment: Moment, run_id: str) -> dict[str, Any]:
    """Return the revisions of a run's input, and its output rows by table."""
    outputs = moment.outputs
    found = {}
    for table in outputs.catalog.list(limit=MOST):
        rows: Found[Any] = outputs.results.load(table.key, run_id, limit=MOST)
        if rows.items:
            found[table.key] = rows
    return {"input": outputs.inputs.find(run_id), "inputs": outputs.inputs.list(run_id), "outputs": found}


def _axis(ask: Ask, run: WorkflowRun, data: dict[str, Any]) -> Axis | None:
    now = run.finished_at or ask.clock.now()
    return pictures.axis(list(_bars(data)), list(_marks(run, data)), now)


def _bars(data: dict[str, Any]) -> Iterator[Bar]:
    for done in reversed(data["executions"].items):
        lane = done.skill if done.node_id is None else f"{done.node_id} ({done.iteration})"
        told = f"{done.skill}: {done.outcome}"
        yield Bar(lane, done.started_at, done.finished_at, done.outcome, told, done.id if done.error else None)
    for gate in data["gates"].items:
        yield Bar("gates", gate.asked_at, gate.answered_at, gate.status, f"{gate.gate}: {gate.status}")
    for request in data["requests"].items:
        text = f"{request.node_id}: {request.status}"
        yield Bar("requests", request.asked_at, request.answered_at, request.status, text)


def _steps(data: dict[str, Any]) -> Iterator[Step]:
    """Yield the nodes of a run with the times of their executions. The order between nodes is not stored."""
    ran: dict[tuple[str, int], list[Any]] = {}
    for done in data["executions"].items:
        if done.node_id is not None:
            ran.setdefault((done.node_id, done.iteration), []).append(done)
    for node in data["nodes"].items:
        found = ran.get((node.node_id, node.iteration), [])
        ends = [done.finished_at for done in found]
        start = min((done.started_at for done in found), default=None)
        end = max((at for at in ends if at is not None), default=None) if None not in ends else None
        name = node.node_id if node.iteration == 0 else f"{node.node_id} ({node.iteration})"
        yield Step(name, node.state, start, end, f"{name}: {node.state}, {node.last_attempt} attempts")


def _marks(run: WorkflowRun, data: dict[str, Any]) -> Iterator[Mark]:
    for change in data["transitions"].items:
        told = change_text(change.from_status, change.to_status, change.reason)
        yield Mark("status", change.at, change.to_status, told)
    for phase in run.phase_history:
        if phase.at is not None:
            kind = "failed" if phase.success is False else "succeeded"
            yield Mark("phases", phase.at, kind, phase.phase)
    for signal in data["signals"].items:
        yield Mark("signals", signal.received_at, "signal", signal.signal_name)
    for happened in data["events"].items:
        yield Mark("events", happened.occurred_at, "event", happened.type)
