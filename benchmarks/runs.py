"""Runs: create, append a phase with scratch, get."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import cycle

import orjson

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.ids import new_id
from lastlight_state.workflows import PhaseEntry, Trigger

TRIGGER = Trigger("https://github.com/acme/widgets/issues/7", type="webhook", repo="acme/widgets", actor="ana")
CONTEXT = {"issue": 7, "title": "Widgets lose their colour", "labels": ["bug", "ui"], "body": "x" * 600}
CONTEXT_TEXT = '{"issue":7,"title":"Widgets lose their colour","labels":["bug","ui"],"body":"' + "x" * 600 + '"}'

_COLUMNS = (
    "id workflow_name trigger_id repo current_phase status context scratch restart_count started_at updated_at owner "
    "trigger_type triggered_by max_restarts transition_seq status_reason phase_count lease_expires_at"
)
_INSERT_RUN = (
    f"INSERT INTO workflow_runs ({', '.join(_COLUMNS.split())}) VALUES ({', '.join('?' * len(_COLUMNS.split()))})"
)
_INSERT_TRANSITION = (
    "INSERT INTO run_transitions (run_id, seq, to_status, reason, source, at) VALUES (?, ?, ?, ?, ?, ?)"
)
_ENABLED = "SELECT 1 FROM workflow_overrides WHERE name = ? AND enabled = {false}"


def results(side: Side) -> Iterator[Result]:
    """Single runs."""
    yield _create(side)
    yield _append_phase(side)
    yield _get(side)


def _create(side: Side) -> Result:
    runs = side.store.workflows.runs
    ids: list[str] = []

    def row() -> tuple[object, ...]:
        now = side.now()
        ids.append(new_id())
        return (
            ids[-1], "triage", TRIGGER.id, "widgets", "start", "running", CONTEXT_TEXT, '{"k":1}', 0, now, now, "acme",
            "webhook", "ana", 3, 1, "run.created", 0, now,
        )  # fmt: skip

    enabled = _ENABLED.format(false="0" if side.name == "sqlite" else "false")
    return compare(
        "create run",
        side.name,
        lambda: runs.create("triage", trigger=TRIGGER, phase="start", context=CONTEXT, scratch={"k": 1}),
        side.unit(
            (enabled, lambda: ("triage",)),
            (_INSERT_RUN, row),
            (_INSERT_TRANSITION, lambda: (ids[-1], 1, "running", "run.created", "engine", side.now())),
        ),
        goal=goal("create run", side.name),
    )


def _append_phase(side: Side) -> Result:
    runs = side.store.workflows.runs
    made = [runs.create("triage", trigger=TRIGGER, phase="start", scratch={"k": 1}).id for _ in range(500)]
    ours, theirs = cycle(made[:250]), cycle(made[250:])  # many runs, so that no history grows long
    entry = {"phase": "build", "timestamp": "2026-02-03T12:34:56.789Z", "success": True, "summary": "done"}
    lock = "" if side.name == "sqlite" else " FOR NO KEY UPDATE"
    select = side.sql(
        "SELECT status, claim_owner, claim_epoch, phase_count, phase_history, scratch "
        f"FROM workflow_runs WHERE id = ?{lock}"
    )
    update = side.sql(
        "UPDATE workflow_runs SET phase_history = ?, scratch = ?, phase_count = phase_count + 1, "
        "current_phase = ?, updated_at = ? WHERE id = ?"
    )
    begin = "BEGIN IMMEDIATE" if side.name == "sqlite" else "BEGIN"
    execute = side.driver.execute

    def raw() -> None:
        run_id = next(theirs)
        execute(begin)
        row = execute(select, (run_id,)).fetchone()
        history, scratch = (orjson.loads(part) if isinstance(part, str) else part for part in row[4:])
        texts = orjson.dumps([*history, entry]).decode(), orjson.dumps({**scratch, "n": 1}).decode()
        execute(update, (*texts, "build", side.now(), run_id))
        execute("COMMIT")

    return compare(
        "append phase and scratch",
        side.name,
        lambda: runs.append_phase(next(ours), PhaseEntry("build", True, "done"), scratch={"n": 1}),
        raw,
        goal=goal("append phase and scratch", side.name),
    )


def _get(side: Side) -> Result:
    runs = side.store.workflows.runs
    run_id = runs.create("triage", trigger=TRIGGER, phase="start", context=CONTEXT, scratch={"k": 1}).id
    names = list(type(runs.get(run_id)).model_fields)
    select = side.sql(f"SELECT {', '.join(names)} FROM workflow_runs WHERE id = ?")
    times = [i for i, name in enumerate(names) if name.endswith("_at")]
    documents = [names.index(name) for name in ("phase_history", "context", "scratch")]
    execute = side.driver.execute

    def raw() -> list[object]:
        row = list(execute(select, (run_id,)).fetchone())
        if side.name == "sqlite":  # psycopg gives times and JSON as values by itself
            for i in times:
                row[i] = row[i] and datetime.fromisoformat(row[i])
            for i in documents:
                row[i] = orjson.loads(row[i])
        return row

    return compare("get run", side.name, lambda: runs.get(run_id), raw, goal=goal("get run", side.name))
