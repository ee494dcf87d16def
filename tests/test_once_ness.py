"""What a call does when the answer to its commit was lost: it is made again, or raises, as its table says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.docs.pages import ROOT
from support.filled_store import EARLY, TRIGGER, Report, scene

from lastlight_state.backends.base import Mode
from lastlight_state.conversations import BranchPatch, NewBranch, NewChunk, NewMessage, NewSession, SessionTree
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.errors import BackendUnavailable, StateError
from lastlight_state.journal import NewEvent, NewScore, SandboxChanges, ToolOutcome
from lastlight_state.messaging import MessageDraft, ThreadPlace
from lastlight_state.outputs import CacheKey
from lastlight_state.schedules import CronSpec, FireOutcome
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, PhaseEntry, Question, Usage

MINUTE = timedelta(minutes=1)
SAID = NewMessage("user", "again", id="again", sender="ana")
REPORT = Report(title="t", score=1, weight=1.5, done=True, at=EARLY, tags=[])
ASKED = Question(NodeRef("again"), "text", "Which?", id="again")

#: Calls over the rows of `scene`. Some claims that they need are taken before.
CALLS: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "runs.create": lambda s, _: s.workflows.runs.create("wf", trigger=TRIGGER, phase="p"),
    "runs.ensure": lambda s, _: s.workflows.runs.ensure("key-1", "wf", trigger=TRIGGER, phase="p"),
    "runs.append_phase": lambda s, _: s.workflows.runs.append_phase("run-0", PhaseEntry("again", True)),
    "runs.merge_scratch": lambda s, _: s.workflows.runs.merge_scratch("run-0", {"a": 1}),
    "runs.request_cancel": lambda s, _: s.workflows.runs.request_cancel("run-1", by="ana", reason="r"),
    "runs.set_trace": lambda s, _: s.workflows.runs.set_trace("run-0", trace_id="t", span_id=None),
    "executions.start": lambda s, _: s.workflows.executions.start("wf:x", run_id="home"),
    "executions.update": lambda s, _: s.workflows.executions.update("ex-1", usage=Usage(input_tokens=4)),
    "executions.finish": lambda s, given: s.workflows.executions.finish(given["execution"], "succeeded"),
    "approvals.create": lambda s, _: s.workflows.approvals.create("home", Gate("again", "Sure?", id="again")),
    "approvals.answer": lambda s, _: s.workflows.approvals.answer("open-0", "approved", by="ana"),
    "approvals.cancel": lambda s, _: s.workflows.approvals.cancel("open-1", by="ana", reason="r"),
    "human_requests.create": lambda s, _: s.workflows.human_requests.create("home", ASKED),
    "human_requests.answer": lambda s, _: s.workflows.human_requests.answer("open-0", "this", by="ana"),
    "human_requests.cancel": lambda s, _: s.workflows.human_requests.cancel("open-1", by="ana", reason="r"),
    "overrides.put": lambda s, _: s.workflows.overrides.put("wf", enabled=False, by="ana"),
    "overrides.clear": lambda s, _: s.workflows.overrides.clear("wf"),
    "workers.announce": lambda s, _: s.workflows.workers.announce("w-1", workflow_names=["wf"]),
    "workers.remove": lambda s, _: s.workflows.workers.remove("w-1"),
    "claims.take": lambda s, given: given.update(claim=s.workflows.claims.take("run-2", owner="w")),
    "claims.take of a silent holder": lambda s, _: s.workflows.claims.take("run-1", owner="w"),
    "claims.try_take": lambda s, _: s.workflows.claims.try_take("waits-0", owner="w"),
    "claims.heartbeat": lambda s, given: s.workflows.claims.heartbeat(given["claim"]),
    "claims.heartbeat_many": lambda s, given: s.workflows.claims.heartbeat_many([given["claim"]]),
    "claims.release": lambda s, given: s.workflows.claims.release(given["claim"]),
    "crons.put": lambda s, _: s.schedules.crons.put("again", CronSpec("* * * * *", "wf")),
    "crons.retire": lambda s, _: s.schedules.crons.retire("again"),
    "fires.heartbeat": lambda s, given: s.schedules.fires.heartbeat(given["fire"]),
    "fires.finish": lambda s, given: s.schedules.fires.finish(given["fire"], FireOutcome("ok")),
    "messages.append": lambda s, _: s.messaging.messages.append(
        "ms-0", role="user", content="again", platform_message_id="pm-again"
    ),
    "events.append": lambda s, _: s.journal.events.append("home", "e", event_id="again"),
    "events.append_many": lambda s, _: s.journal.events.append_many("home", [NewEvent("e", event_id="more")]),
    "signals.send": lambda s, _: s.journal.signals.send("home", "go", {}, signal_id="again"),
    "tool_calls.create": lambda s, _: s.journal.tool_calls.create("home", "grep", call_id="again"),
    "tool_calls.finish": lambda s, given: s.journal.tool_calls.finish("home", given["call"], ToolOutcome("succeeded")),
    "sandboxes.put": lambda s, _: s.journal.sandboxes.put("home", "sb", SandboxChanges(status="running")),
}

#: Calls of domains that the table leaves out. All of them find what their first attempt stored.
REPEATED: dict[str, Callable[[Any], object]] = {
    "nodes.put": lambda s: s.workflows.nodes.put("home", NodeRef("again"), state="pending"),
    "loops.put": lambda s: s.workflows.loops.put("home", "again", iteration=1),
    "scores.record": lambda s: s.journal.scores.record(NewScore("home", "n-0", "x", "X", "live", 1.0, id="again")),
    "scores.record of a rerun": lambda s: s.journal.scores.record(NewScore("home", "n-0", "x", "X", "live", 2.0)),
    "events.ensure_start": lambda s: s.journal.events.ensure_start("home", 0),
    "frames.append under a number": lambda s: s.journal.frames.append("home", None, frame_no=900),
    "signals.try_take": lambda s: s.journal.signals.try_take("home", "go", consumer="again"),
    "cron overrides.put": lambda s: s.schedules.overrides.put("cron-0", schedule="@daily", by="ana"),
    "cron overrides.clear": lambda s: s.schedules.overrides.clear("cron-0"),
    "catalog.define": lambda s: s.outputs.catalog.define("again", Report),
    "inputs.ensure": lambda s: s.outputs.inputs.ensure("run-0", {"n": 1}),
    "results.put": lambda s: s.outputs.results.put("report", "home", "again", REPORT),
    "cache.ensure": lambda s: s.outputs.cache.ensure(CacheKey("wf", "again", {}), "report", REPORT),
    "conversations.sessions.ensure": lambda s: s.conversations.sessions.ensure(NewSession("again", "n")),
    "conversations.sessions.touch": lambda s: s.conversations.sessions.touch("talk-0"),
    "conversations.sessions.merge_metadata": lambda s: s.conversations.sessions.merge_metadata("talk-0", {"a": 1}),
    "conversations.sessions.hold": lambda s: s.conversations.sessions.hold("talk-0", "audit"),
    "branches.append": lambda s: s.conversations.branches.append("branch-0", [SAID]),
    "branches.update": lambda s: s.conversations.branches.update("branch-0", BranchPatch(name="again")),
    "branches.ensure": lambda s: s.conversations.branches.ensure("talk-0", NewBranch(id="again")),
    "progressions.ensure": lambda s: s.conversations.progressions.ensure("again"),
    "progressions.append": lambda s: s.conversations.progressions.append(_order(s), ["msg-0"]),
    "message_types.resolve": lambda s: s.conversations.message_types.resolve("again.Class"),
    "conversations.messages.put": lambda s: s.conversations.messages.put(NewMessage("user", "grown", id="msg-1")),
    "conversations.messages.set_embedding": lambda s: s.conversations.messages.set_embedding("msg-0", [1.0]),
    "conversations.messages.ensure": lambda s: s.conversations.messages.ensure(SAID),
    "trees.save": lambda s: s.conversations.trees.save(SessionTree(NewSession("tree"), [])),
    "lifecycle.try_transition": lambda s: s.conversations.lifecycle.try_transition("talk-1", "completed"),
    "lifecycle.heartbeat": lambda s: s.conversations.lifecycle.heartbeat("talk-0", "w"),
    "lifecycle.record_verification": lambda s: s.conversations.lifecycle.record_verification("talk-0", {"status": "x"}),
    "vectors.put": lambda s: s.conversations.vectors.put("ns-0", [NewChunk("again", "text", [1, 2])]),
    "vectors.clear of a document": lambda s: s.conversations.vectors.clear("ns-0", document_id="doc"),
    "vectors.clear of ids": lambda s: s.conversations.vectors.clear("ns-0", ids=["again"]),
    "vectors.clear": lambda s: s.conversations.vectors.clear("ns-1", scope="namespace"),
    "exchange.join": lambda s: s.conversations.exchange.join("channel", "again"),
    "exchange.leave": lambda s: s.conversations.exchange.leave("channel", "again"),
    "exchange.send": lambda s: s.conversations.exchange.send(SAID, to="owner-0"),
    "exchange.publish": lambda s: s.conversations.exchange.publish(NewMessage("user", "x", id="p"), channel="channel"),
    "exchange.ack": lambda s: s.conversations.exchange.ack("owner", 0, reader="r"),
    "exchange.release": lambda s: s.conversations.exchange.release("owner", 1, reader="r"),
    "messages.try_append_to_thread": lambda s: s.messaging.messages.try_append_to_thread(
        ThreadPlace("chat", "c", "t-0"), MessageDraft("assistant", "again", "posted")
    ),
    "messages.append_many": lambda s: s.messaging.messages.append_many("ms-0", [MessageDraft("user", "x", "m")]),
    "changes.trim": lambda s: s.conversations.changes.trim("talk-0", below=2),
}


def test_a_call_whose_answer_was_lost_does_as_its_table_says(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-51; packaging PT-22."""
    store, _ = scene(fresh_database)
    given = _given(store, fresh_database)
    losing = Losing(monkeypatch)
    found = {name: losing.outcomes(partial(call, store, given)) for name, call in CALLS.items()}
    stated = dict(_stated())
    assert found == {name: {stated[name.split()[0]]} for name in CALLS}


def test_calls_that_find_what_they_stored_are_made_again(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-51."""
    store, _ = scene(fresh_database)
    losing = Losing(monkeypatch)
    found = {name: losing.outcomes(partial(call, store)) for name, call in REPEATED.items()}
    assert found == {name: {"repeats"} for name in REPEATED}


def _order(store: Any) -> str:
    order: str = store.conversations.branches.get("branch-0").progression_id
    return order


def _given(store: Any, database: Database) -> dict[str, Any]:
    """What calls go on with."""
    store.workflows.claims.take("run-1", owner="gone")
    database.clock.advance(seconds=7_200)
    started = store.workflows.executions.start("wf:x", run_id="home").id
    fire = store.schedules.fires.create("cron-0", owner="w", lease=MINUTE)
    call = store.journal.tool_calls.create("home", "grep").seq
    return {"execution": started, "fire": fire, "call": call}


class Losing:
    """Loses answers: a unit that writes commits, and its caller is told that the connection was lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left = -1
        attempt: Callable[..., Any] = StoreScope._attempt

        def losing(scope: StoreScope, mode: Mode, *given: Any, **named: Any) -> Any:
            done = attempt(scope, mode, *given, **named)
            self._left -= mode in (Mode.ONE, Mode.WRITE)
            if not self._left:
                self._left -= 1
                raise BackendUnavailable("the connection was lost", outcome="unknown", repeats=1)
            return done

        monkeypatch.setattr(StoreScope, "_attempt", losing)

    def outcomes(self, call: Callable[[], object]) -> set[str]:
        """What a call does that loses the answer of its first unit, of its second and so on, until one raises."""
        found: set[str] = set()
        for at in range(1, 9):
            self._left = at
            try:
                call()
            except StateError as error:
                return found | {"raises" if getattr(error, "outcome", None) == "unknown" else repr(error)}
            if self._left >= 0:
                break
            found.add("repeats")
        return found


def _stated() -> Iterator[tuple[str, str]]:
    page = (ROOT / "docs" / "promises.md").read_text("utf-8")
    table = page.partition("## Once-ness of each verb")[2].partition("\n## ")[0]
    for names, outcome in re.findall(r"^\| (`.+?) \|.* \| (\w+)[^|]* \|$", table, re.MULTILINE):
        repository = ""
        for name in re.findall(r"`([a-z_.]+)`", names):
            repository = name.partition(".")[0] if "." in name else repository
            yield f"{repository}.{name.rpartition('.')[2]}", outcome
