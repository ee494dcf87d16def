"""What is stuck, why it failed, who answered what: the first lines of a command are the answer, at 80 columns."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Failure, Gate, NodeRef, Question, RunOptions, Trigger, Usage

ERROR = "TestsFailed: 3 of 412 tests failed: test_rain_is_wet, test_login, test_refund, test_of_a_long_name"
LONG = "Ship it?\n\nThe canary is green.\x1b[31m"

#: What a terminal is told of colours.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def opened(database: Database, frozen_clock: FrozenClock) -> StateStore:
    """Return a store whose clock began three hours ago."""
    frozen_clock.set(SYSTEM_CLOCK.now() - timedelta(hours=3))
    return database.open()


def begun(store: StateStore, run_id: str, **options: Any) -> str:
    trigger = Trigger("acme/weather#42", type="cli", owner="acme", repo="weather", actor="ana")
    return store.workflows.runs.create(
        "review", trigger=trigger, phase="p", options=RunOptions(id=run_id, **options)
    ).id


def failed(store: StateStore, run_id: str = "failed-run") -> str:
    w = store.workflows
    begun(store, run_id)
    done = w.executions.start("review:check", run_id=run_id)
    w.executions.finish(done.id, "failed", usage=Usage(cost_usd=1.25), failure=Failure(f"{ERROR}\nTraceback"))
    w.runs.finish(run_id, "failed", failure=Failure(f"{ERROR}\nTraceback"))
    return run_id


def fits(said: Said, first: int | None = None) -> list[str]:
    """Return the lines, of which the first or all fit into 80 columns, but for commands, which are pasted whole."""
    lines = _STYLE.sub("", said.out).splitlines()
    assert said.code == 0, said
    assert [
        one for one in lines[:first] if len(one) > 80 and "lastlight-state" not in one and "page-token" not in one
    ] == []
    return lines


def test_what_is_stuck_says_why_and_what_helps(
    database: Database, opened: StateStore, frozen_clock: FrozenClock, typed: Any
) -> None:
    """maintenance OP-112, OP-105: trouble that several runs share is told once."""
    w = opened.workflows
    w.approvals.pause(begun(opened, "asks"), Gate("ship", LONG))
    w.human_requests.pause(begun(opened, "wonders"), Question(NodeRef("which"), "text", "Which team?"))
    for run_id in ("lost-1", "lost-2"):
        w.claims.take(begun(opened, run_id, max_restarts=0), owner="gone", lease=timedelta(seconds=1))
    frozen_clock.advance(timedelta(hours=3))
    lines = fits(typed("ls", "--url", database.url))
    assert lines[0] == "2 questions wait for a person; 2 runs are not well"
    told = "\n".join(lines)
    assert "review waits for an answer to *ship*, asked 3 h ago\n    Ship it?\n    The canary is green." in told
    assert "review waits for an answer to *which*, asked 3 h ago\n    Which team?" in told
    assert told.count("its worker is gone, and it has used up its restarts") == 1
    assert opened.backend.command("run", "ID", "allow-restarts", "--max", "N") in told
    assert "\x1b[31m" not in told


def test_lists_of_runs_say_why_each_failed_or_waits(database: Database, opened: StateStore, typed: Any) -> None:
    """maintenance OP-112: in a column, below the row on a terminal, and as JSON."""
    failed(opened)
    opened.workflows.approvals.pause(begun(opened, "asks"), Gate("ship", "Ship it?"))
    told = "\n".join(fits(typed("ls", "runs", "--url", database.url)))
    assert "\n    TestsFailed: 3 of 412 tests failed: test_rain_is_wet, " in told
    assert "    waits for an answer to *ship*" in told
    assert ERROR in lastlight_state("ls", "runs", "--url", database.url).out
    items = lastlight_state("ls", "runs", "--url", database.url, "--json").data["items"]
    found = {one["id"]: (one["error"], one["told"]) for one in items}
    assert found == {"failed-run": (ERROR, ERROR), "asks": (None, "waits for an answer to *ship*")}


def test_the_first_lines_of_a_run_say_why_it_failed(database: Database, opened: StateStore, typed: Any) -> None:
    """maintenance OP-112: who began it, what it cost, and the command that begins it again."""
    failed(opened)
    lines = fits(typed("show", "failed-run", "--url", database.url), 20)
    assert lines[0] == "review, for acme/weather#42"
    assert lines[1] == "failed 3 h ago, after 0 s"
    assert lines[2].startswith("    TestsFailed: 3 of 412")
    assert "begun by ana (cli); cost $1.25 in 1 execution" in lines
    assert f"begin it again: {opened.backend.command('retry', 'failed-run')}" in lines


def test_the_first_lines_of_a_live_run_say_what_it_waits_for(database: Database, opened: StateStore) -> None:
    """maintenance OP-112: and what helps."""
    w, command = opened.workflows, opened.backend.command
    w.approvals.pause(begun(opened, "asks"), Gate("ship", "Ship it?"))
    w.waits.pause(begun(opened, "held"), by="ana", reason="not now")
    w.claims.take(begun(opened, "driven"), owner="host/worker-1", lease=timedelta(hours=4))
    w.runs.cancel(begun(opened, "ended"), by="bo", reason="wrong branch")
    w.claims.take(begun(opened, "lost", max_restarts=0), owner="gone", lease=timedelta(seconds=1))
    expected = {
        "asks": ("paused: waits for an answer to *ship*", f"answer it: {command('inbox', '--run', 'asks')}"),
        "held": ("paused: paused by a person", f"let it go on: {command('run', 'held', 'resume')}"),
        "driven": ("in phase p, driven by host/worker-1", "cost $0.00 in 0 executions"),
        "ended": ("cancelled ", "wrong branch"),
        "lost": ("used up its restarts", command("run", "lost", "allow-restarts", "--max", "N")),
    }
    for run_id, texts in expected.items():
        told = lastlight_state("show", run_id, "--url", database.url).out
        for text in texts:
            assert text in told, run_id


def test_approvals_say_who_answered_when_and_why(database: Database, opened: StateStore, typed: Any) -> None:
    """maintenance OP-112: of all runs, or of one."""
    w = opened.workflows
    one = w.approvals.create(begun(opened, "one"), Gate("ship", LONG))
    w.approvals.answer(one.id, "approved", by="ana", response="as discussed\nwith Bo")
    w.approvals.create(begun(opened, "two"), Gate("merge", "Merge?"))
    lines = fits(typed("ls", "approvals", "--url", database.url))
    assert "ANSWERED" in lines[0]
    assert lines[-5:][1:] == [
        "    Ship it?",
        "    The canary is green.\\x1b[31m",
        "    ana: as discussed",
        "    with Bo",
    ]
    of_one = lastlight_state("ls", "approvals", "--run", "one", "--json", "--url", database.url).data["items"]
    assert [(found["answered_by"], found["response"]) for found in of_one] == [("ana", "as discussed\nwith Bo")]
    call = ("ls", "approvals", "--run", "one", "--status", "pending", "--url", database.url)
    assert lastlight_state(*call).code == 2
    assert "gate ship approved: as discussed" in lastlight_state("timeline", "one", "--url", database.url).out


def test_a_timeline_tells_times_of_day_and_errors(
    database: Database, opened: StateStore, frozen_clock: FrozenClock, typed: Any
) -> None:
    """maintenance OP-112: below each day; texts go on below themselves."""
    start = frozen_clock.now()
    failed(opened)
    lines = fits(typed("timeline", "failed-run", "--url", database.url))
    assert f"{start:%Y-%m-%d} UTC" in lines[0]
    assert lines[1] == f"{start:%H:%M:%S}  began (by ana)"
    at = lines.index(next(line for line in lines if "failed: TestsFailed" in line))
    assert lines[at].startswith(f"{start:%H:%M:%S}  failed: TestsFailed: 3 of 412 tests failed")
    assert lines[at + 1].startswith(" " * 10)
    assert ERROR in lastlight_state("timeline", "failed-run", "--follow", "--url", database.url).out
    local = typed("timeline", "failed-run", "--local", "--url", database.url).out
    assert "UTC" not in local
