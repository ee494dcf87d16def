"""Texts that callers store or ask for, at the edges of what both databases can hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.workflows import Failure, Gate, NodeRef, PhaseEntry, Provenance, RunOptions, Trigger

BAD = ["a\0b", "\ud800", "x\udfffy"]
HOSTILE = "'; DROP TABLE workflow_runs; -- \" %s %(name)s :name ? \\ $1 \U0001f600 \u202e"


def rocket(size: int) -> str:
    """A text of so many bytes, in characters of four."""
    return "\U0001f680" * (size // 4)


def begin(store: StateStore, **given: Any) -> Any:
    trigger = Trigger(
        given.pop("trigger_id", "t"),
        owner=given.pop("owner", None),
        repo=given.pop("repo", None),
        actor=given.pop("actor", None),
    )
    options = RunOptions(id=given.pop("id", None), provenance=Provenance(trace_id=given.pop("trace_id", None)))
    name, phase = given.pop("workflow_name", "deploy"), given.pop("phase", "plan")
    if "run_key" in given:
        return store.workflows.runs.ensure(given["run_key"], name, trigger=trigger, phase=phase, options=options).run
    return store.workflows.runs.create(name, trigger=trigger, phase=phase, options=options, **given)


def ask(store: StateStore, **given: Any) -> Any:
    if "node_id" in given:
        given["node"] = NodeRef(given.pop("node_id"))
    return store.workflows.approvals.create(started(store).id, Gate(**{"gate": "plan", "summary": "Go?", **given}))


def answer(store: StateStore, **given: Any) -> Any:
    approval = ask(store)
    return store.workflows.approvals.answer(approval.id, "rejected", **{"by": "ana", **given})


def finish(store: StateStore, **given: Any) -> Any:
    return store.workflows.runs.finish(started(store).id, "failed", **given)


INDEXED: list[tuple[Callable[..., Any], str, int]] = [
    (begin, "id", 256),
    (begin, "workflow_name", 256),
    (begin, "phase", 128),
    (begin, "trigger_id", 512),
    (begin, "owner", 200),
    (begin, "repo", 200),
    (begin, "actor", 128),
    (begin, "run_key", 256),
    (ask, "id", 256),
    (ask, "gate", 128),
    (ask, "artifact", 256),
    (ask, "node_id", 256),
    (ask, "requested_by", 128),
    (ask, "request_key", 256),
    (answer, "by", 128),
    (finish, "reason", 64),
]
INDEXED_IDS = [f"{call.__name__}-{name}" for call, name, _ in INDEXED]


@with_each(("call", "name", "limit"), INDEXED, ids=INDEXED_IDS)
def test_a_text_of_an_index_is_bounded_in_bytes(
    every_backend: StateStore, call: Callable[..., Any], name: str, limit: int
) -> None:
    """workflows W-2, case 64: at the limit, in characters of four bytes, rows insert on both databases."""
    call(every_backend, **{name: rocket(limit)})
    with pytest.raises(InvalidValue):
        call(every_backend, **{name: rocket(limit) + "x"})
    for refused in (" ", "a\nb", "\x7f"):
        if name not in ("owner", "repo"):  # of which a blank one is absent
            with pytest.raises(InvalidValue):
                call(every_backend, **{name: refused})


CONTENTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (begin, {"context": {"a": "{}"}}),
    (begin, {"context": {"{}": 1}}),
    (begin, {"scratch": {"a": ["{}"]}}),
    (begin, {"trace_id": "{}"}),
    (ask, {"summary": "{}"}),
    (ask, {"action": {"a": "{}"}}),
    (answer, {"response": "{}"}),
    (answer, {"scratch": {"a": "{}"}}),
    (finish, {"failure": Failure("{}")}),
    (finish, {"failure": Failure("boom", {"a": "{}"})}),
    (finish, {"marker": PhaseEntry("test", False, "{}")}),
]


def filled(value: Any, text: str) -> Any:
    """The value with ``{}`` replaced everywhere."""
    if isinstance(value, str):
        return value.replace("{}", text)
    if isinstance(value, dict):
        return {filled(key, text): filled(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, text) for each in value]
    if isinstance(value, Failure | PhaseEntry):
        return type(value)(**filled(vars(value), text))
    return value


@with_each("bad", BAD)
def test_texts_that_one_database_would_refuse_are_refused_on_both(
    every_backend: StateStore, raw: Raw, bad: str
) -> None:
    """workflows W-4, case 64."""
    for call, name, _ in INDEXED:
        with pytest.raises(InvalidValue):
            call(every_backend, **{name: bad})
    for call, given in CONTENTS:
        with pytest.raises(InvalidValue):
            call(every_backend, **filled(given, bad))
    assert {status for (status,) in raw("SELECT status FROM workflow_runs")} == {"running"}
    assert {status for (status,) in raw("SELECT status FROM workflow_approvals")} == {"pending"}


def test_hostile_texts_are_stored_as_they_are(store: StateStore) -> None:
    """backends B-86: exactly, on both databases."""
    run = begin(store, id=HOSTILE, context={HOSTILE: HOSTILE}, scratch={"a": HOSTILE * 10}, workflow_name=HOSTILE)
    assert store.workflows.runs.get(HOSTILE) == run
    assert (run.context, run.scratch) == ({HOSTILE: HOSTILE}, {"a": HOSTILE * 10})
    approval = store.workflows.approvals.create(HOSTILE, Gate(HOSTILE, HOSTILE, action=[HOSTILE]))
    assert store.workflows.approvals.get(approval.id) == approval
    assert [each.id for each in store.workflows.runs.list(workflow_names=[HOSTILE])] == [HOSTILE]
    rejected = store.workflows.approvals.answer(approval.id, "rejected", by=HOSTILE, response=HOSTILE)
    assert rejected.run.error == f"Rejected: {HOSTILE}"


@with_each("bad", BAD)
def test_nothing_is_looked_for_that_no_database_can_hold(store: StateStore, bad: str) -> None:
    """workflows W-4: the same error on both, not a driver's; anything else is simply not found."""
    runs, approvals = store.workflows.runs, store.workflows.approvals
    calls: list[Callable[[str], object]] = [
        runs.get,
        partial(runs.merge_scratch, patch={"a": 1}),
        partial(runs.finish, status="failed"),
        partial(runs.cancel, by="ana", reason="stop", scope="tree"),
        partial(runs.set_trace, trace_id=None, span_id=None),
        partial(approvals.pause, gate=Gate("plan", "Go?")),
        partial(approvals.answer, decision="approved", by="ana"),
        approvals.get,
        approvals.list_for_run,
    ]
    for call in calls:
        with pytest.raises(InvalidValue):
            call(bad)
        with pytest.raises(NotFound):
            call("x" * 3_000)
