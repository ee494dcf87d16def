"""What a run's attempts used and what was said of them: tool calls, sandboxes and scores, as rows of ours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.journal import words
from lastlight_state.journal.tables import SANDBOXES, SCORES, TOOL_CALLS
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms, fitting, id_of, mapped, moment

_CALL, _SANDBOX, _SCORE = limits_of(TOOL_CALLS), limits_of(SANDBOXES), limits_of(SCORES)

_NAME = cells.name(256)
_TOOL_STATUSES = {
    **dict.fromkeys(("success", "succeeded", "finished"), "succeeded"),
    **dict.fromkeys(("error", "failed"), "failed"),
    "cancelled": "cancelled",
    "running": words.RUNNING,
}
_SANDBOX_STATUSES = {**{word: word for word in words.SANDBOX_STATUSES}, "finished": "completed"}
_PLACED_SANDBOX = {
    *("run_id", "sandbox_id", "runtime", "remote_run_id", "workspace_id", "container_id", "config_json", "status"),
    *("shipped_at_ms", "completed_at_ms", "bundle_path"),
}
_SCORED = ("node_id", "iteration", "attempt", "scorer_id", "source")


def tool_call(terms: Terms, row: Row, executions: Collection[str]) -> Row:
    """A tool call without a number: there calls are numbered within their attempt, here within the run.

    ``executions`` are the ids of those that there are.
    """
    found = Found(terms, "_smithers_tool_calls", row, "seq")
    run_id, node = found.must("run_id", _NAME), found.must("node_id", _NAME)
    place = [found.must(name, valid.number) for name in ("iteration", "attempt", "seq")]
    begun, ended = found.must("started_at_ms", moment), found.may("finished_at_ms", moment)
    execution = id_of(run_id, node, *place[:2])
    return {
        "run_id": run_id,
        "node_id": node,
        "iteration": place[0],
        "attempt": place[1],
        "execution_id": execution if execution in executions else None,
        "call_id": fitting(":".join(map(str, (node, *place))), 256),
        "tool_name": found.must("tool_name", _NAME),
        "status": found.must("status", partial(mapped, _TOOL_STATUSES)),
        "started_at": begun,
        "finished_at": ended,
        "duration_ms": None if ended is None else max(0, round((ended - begun).total_seconds() * 1000)),
        "output_ref": None,
        **{name: found.json(f"{name}_json", getattr(_CALL, name)) for name in ("input", "output", "error")},
    }


def sandbox(terms: Terms, row: Row, run: Row) -> Row:
    """A sandbox. The source says when it was shipped and ended, and not when it was made."""
    found = Found(terms, "_smithers_sandboxes", row, "sandbox_id", adapts=True)
    shipped, completed = (found.may(f"{name}_at_ms", moment) for name in ("shipped", "completed"))
    made: Row = {
        "run_id": found.must("run_id", _NAME),
        "sandbox_id": found.must("sandbox_id", _NAME),
        "runtime": found.must("runtime", _NAME),
        "status": found.must("status", partial(mapped, _SANDBOX_STATUSES)),
        **{name: found.may(name, _NAME) for name in ("remote_run_id", "workspace_id", "container_id")},
        "bundle_path": found.may("bundle_path", cells.name(_SANDBOX.bundle_path)),
        "shipped_at": shipped,
        "completed_at": completed,
        "created_at": run["started_at"],
        "updated_at": completed or shipped or run["started_at"],
    }
    config = found.json("config_json", _SANDBOX.config, dict) or {}
    return {**made, "config": {**config, **(found.others(_PLACED_SANDBOX, _SANDBOX.config) or {})}}


def scores(terms: Terms, rows: Sequence[Row]) -> Iterator[Row]:
    """The scores in the order of their times: of those of one scorer for one attempt the last is in force."""
    made = sorted((_score(terms, row) for row in rows), key=lambda one: (one["scored_at"], one["id"]))
    later: dict[tuple[Any, ...], datetime] = {}
    for one in reversed(made):
        place = tuple(one[name] for name in _SCORED)
        yield {**one, "superseded_at": later.get(place)}
        later[place] = one["scored_at"]


def _score(terms: Terms, row: Row) -> Row:
    found = Found(terms, "_smithers_scorers", row, "id", adapts=True)
    made: Row = {
        "id": found.must("id", _NAME),
        "run_id": found.must("run_id", _NAME),
        **{name: found.must(name, _NAME) for name in ("node_id", "scorer_id", "scorer_name")},
        **{name: found.must(name, valid.number) for name in ("iteration", "attempt")},
        "source": found.must("source", partial(valid.word, vocabulary=words.SCORE_SOURCES)),
        "score": found.must("score", cells.real),
        **{name: found.may(name, cells.real) for name in ("latency_ms", "duration_ms")},
        "scored_at": found.must("scored_at_ms", moment),
        "reason": found.may("reason", cells.text(_SCORE.reason)),
        **{name: found.json(f"{name}_json", getattr(_SCORE, name)) for name in ("input", "output")},
        "expected": None,
    }
    meta = found.json("meta_json", _SCORE.meta)
    kept = found.kept({}, _SCORE.meta)
    return {**made, "meta": meta if kept is None else {"meta": meta, **kept}}
