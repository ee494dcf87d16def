"""Outputs: a row that is new, against an insert without and with validation, and one row by its key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from pydantic import BaseModel

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.workflows import Trigger


class Analysis(BaseModel):
    """A row of an output table."""

    summary: str
    score: int


SUMMARY = "Tokens expire without a word, and nobody is told. " * 10
COLUMNS = "run_id, node_id, iteration, row_created_at, row_updated_at, summary, score"


def results(side: Side) -> Iterator[Result]:
    """Put and get."""
    store = side.store
    run = store.workflows.runs.create("audit", trigger=Trigger("t", type="cli"), phase="start").id
    table = store.outputs.define("analysis", Analysis)
    ours, theirs, validated = count(), count(), count()
    value = {"summary": SUMMARY, "score": 7}
    insert = f"INSERT INTO analysis ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
    yield compare(
        "put an output",
        side.name,
        lambda: store.outputs.results.put(table, run, "ours", value, iteration=next(ours)),
        side.unit((insert, lambda: (run, "theirs", next(theirs), side.now(), side.now(), SUMMARY, 7))),
        goal=goal("put an output", side.name),
    )
    put_by_hand = side.unit((insert, lambda: (run, "validated", next(validated), side.now(), side.now(), SUMMARY, 7)))
    yield compare(
        "put an output, validated too",
        side.name,
        lambda: store.outputs.results.put(table, run, "ours", value, iteration=next(ours)),
        lambda: (Analysis.model_validate(value).model_dump(mode="json"), put_by_hand()),
        goal=None,
    )
    get = f"SELECT {COLUMNS} FROM analysis WHERE run_id = ? AND node_id = ? AND iteration = ?"
    yield compare(
        "get an output",
        side.name,
        lambda: store.outputs.results.get(table, run, "ours"),
        side.read(get, lambda: (run, "ours", 0)),
        goal=goal("get an output", side.name),
    )
