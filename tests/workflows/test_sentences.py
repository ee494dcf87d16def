"""The state of runs in words, which the command line and the inspector share."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from support.each import with_each

from lastlight_state import workflows
from lastlight_state.clock import ago, duration_text
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Gate, RunOptions, Trigger
from lastlight_state.workflows.health.state import Blocked
from lastlight_state.workflows.sentences import (
    REASONS,
    TROUBLES,
    change_text,
    story_text,
    trouble_text,
    troubles,
    waits_text,
)
from lastlight_state.workflows.shared.transitions import TransitionReason

NOW = datetime(2026, 2, 3, 12, 0, tzinfo=UTC)
FOLDER = Path(workflows.__file__).parent


def literals(name: str) -> set[str]:
    """Return the texts that stand as ``reason=`` somewhere in the domain."""
    found = set[str]()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == name and isinstance(node.value, ast.Constant):
                found.add(str(node.value.value))
    return found


def test_every_reason_of_the_library_has_words() -> None:
    """maintenance OP-112."""
    reasons = {reason for reason in literals("reason") if "." in reason}
    paused = {f"run.paused.{why}" for why in get_args(TransitionReason)}
    assert reasons - REASONS.keys() == set()
    assert paused - REASONS.keys() == set()


def test_every_complaint_about_a_run_has_words_and_says_what_helps() -> None:
    """maintenance OP-112."""
    source = (FOLDER / "health" / "state.py").read_text("utf-8")
    complaints = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "_complaints"
    )
    words = {
        str(pair.elts[0].value)
        for pair in ast.walk(complaints)
        if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant)
    }
    assert words == TROUBLES.keys()
    assert all(trouble.what and trouble.todo for trouble in TROUBLES.values())


def test_what_says_most_stands_first() -> None:
    """maintenance OP-112: a run without restarts is not taken, so its lease says nothing more."""
    assert trouble_text(["lease_expired", "restart_limit"]) == TROUBLES["restart_limit"].what
    assert [one.what for one in troubles(["execution_silent", "cancel_ignored", "of_tomorrow"])] == [
        TROUBLES["cancel_ignored"].what,
        TROUBLES["execution_silent"].what,
        "of_tomorrow",
    ]


@with_each(
    ("seconds", "told"),
    [(0, "0 s"), (99, "99 s"), (100, "1 min"), (5_999, "99 min"), (11_000, "3 h 3 min"), (40_000, "11 h"),
     (400_000, "4 d")],
)  # fmt: skip
def test_lengths_of_time_are_told_in_their_greatest_unit(seconds: int, told: str) -> None:
    """maintenance OP-112."""
    length = timedelta(seconds=seconds)
    assert duration_text(length) == told
    assert ago(NOW - length, NOW) == f"{told} ago"
    assert ago(NOW + length, NOW) == (f"in {told}" if seconds else f"{told} ago")


@with_each(
    ("blocked", "told"),
    [
        (Blocked(kind="approval", label="merge", since=NOW - timedelta(hours=3), count=2),
         "waits for an answer to *merge* and 1 more, asked 3 h ago"),
        (Blocked(kind="human_request", label="which", until=NOW + timedelta(hours=1)),
         "waits for an answer to *which*, expires in 60 min"),
        (Blocked(kind="timer", since=NOW - timedelta(minutes=5), until=NOW), "waits for its time, for 5 min, until"),
        (Blocked(kind="signal", id="go", label="c-1"), "waits for the signal *go* of c-1"),
        (Blocked(kind="operator", since=NOW), "paused by a person, for 0 s"),
        (Blocked(kind="queue"), "waits in the queue"),
        (Blocked(kind="workflow_disabled", id="review"), "because the workflow *review* is switched off"),
        (Blocked(kind="worker", label="none was seen"), "waits for a worker: none was seen"),
        (Blocked(kind="of_tomorrow"), "waits for of_tomorrow"),
    ],
)  # fmt: skip
def test_every_wait_is_a_sentence(blocked: Blocked, told: str) -> None:
    """maintenance OP-112."""
    assert told in waits_text(blocked, NOW)


@with_each(
    ("change", "told"),
    [
        ((None, "running", "run.created"), "began"),
        ((None, "queued", "run.created"), "began in the queue"),
        (("running", "failed", "run.finished"), "failed"),
        (("running", "failed", "gate.rejected"), "failed: a question was rejected"),
        (("running", "paused", "run.paused.gate"), "waits for an answer"),
        (("running", "running", "cancel.requested"), "asked to stop"),
        (("running", "failed", "of_theirs"), "running to failed (of_theirs)"),
        (("running", "running", "of_theirs"), "of_theirs"),
        ((None, "running", "of_theirs"), "running (of_theirs)"),
    ],
)
def test_every_change_is_told_in_words(change: tuple[str | None, str, str], told: str) -> None:
    """maintenance OP-112."""
    assert change_text(*change) == told


def test_a_run_that_waits_for_an_answer_says_to_what(database: Database, frozen_clock: FrozenClock) -> None:
    """maintenance OP-112, workflows W-97: by the name of the gate where its node has no label."""
    store = database.open()
    run = store.workflows.runs.create("deploy", trigger=Trigger("t"), phase="p", options=RunOptions(id="r"))
    store.workflows.approvals.pause(run.id, Gate("ship", "Ship it?"))
    frozen_clock.advance(timedelta(hours=3))
    state = store.workflows.health.get_state(run.id)
    assert story_text("paused", "run.paused.gate", None, state) == "waits for an answer to *ship*, asked 3 h ago"
    assert store.workflows.health.get_states([run.id]) == {run.id: state}
    assert story_text("failed", "run.finished", "ValueError: x", None) == "ValueError: x"
    assert story_text("succeeded", "run.finished", None, None) == ""
    assert story_text("paused", "run.paused.signal", None, None) == "waits for a signal"
