"""A store with several rows of every kind that a list, a look-up or a sweep shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from pydantic import BaseModel
from support.journal.trees import element, text

from lastlight_state import StateStore
from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession, Reason
from lastlight_state.journal import NewEvent, NewScore, SandboxChanges, ToolOutcome
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs import CacheKey
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, PhaseEntry, Question, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions, Usage

#: How many rows of each kind there are, and which of them is damaged.
ROWS, AT = 3, 1
REPORTS = ("report", "second", "third")
TRIGGER = Trigger("trigger", repo="o/r", type="cli")
EARLY, LATE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


class Report(BaseModel):
    """An output with a column of each kind."""

    title: str
    score: int
    weight: float
    done: bool
    at: datetime
    tags: list[str]


def scene(database: Database) -> tuple[StateStore, list[sa.Table]]:
    """Return a store with rows of every kind that a list or sweep shows, and its tables, an output table among them."""
    store = database.open(migrate=True)
    table, *_ = [store.outputs.catalog.define(key, Report) for key in REPORTS]
    _fill(store, database.clock.now())
    database.clock.advance(seconds=7_200)
    return store, [*METADATA.sorted_tables, table.table]


def _fill(store: StateStore, now: datetime) -> None:
    w = store.workflows
    soon = now + timedelta(minutes=1)
    w.runs.create("home", trigger=TRIGGER, phase="p", options=RunOptions(id="home"))
    for n in range(ROWS):
        create = w.runs.create
        create(f"wf-{n}", trigger=TRIGGER, phase="p", context={"c": 1}, scratch={"s": n},
               options=RunOptions(id=f"run-{n}", parent_run_id="home"))  # fmt: skip
        create("queued", trigger=TRIGGER, phase="p", options=RunOptions(id=f"queued-{n}", status="queued"))
        create("waits", trigger=TRIGGER, phase="p", options=RunOptions(id=f"waits-{n}"))
        w.runs.append_phase(f"run-{n}", PhaseEntry("build", True))
        w.waits.pause(f"waits-{n}", signal="go", correlation_id="c")
        create("spent", trigger=TRIGGER, phase="p", options=RunOptions(id=f"spent-{n}", max_restarts=0))
        w.claims.take(f"spent-{n}", owner="gone")
        w.approvals.create(f"run-{n}", Gate(f"gate-{n}", "Sure?", id=f"ap-{n}", expires_at=soon, action={"do": n}))
        w.human_requests.create(
            f"run-{n}", Question(NodeRef("ask"), "select", "Which?", options=["a"], id=f"hr-{n}", expires_at=soon)
        )
        w.approvals.create(f"run-{n}", Gate(f"open-{n}", "Sure?", id=f"open-{n}"))
        w.human_requests.create(f"run-{n}", Question(NodeRef("other"), "text", "Which?", id=f"open-{n}"))
        w.approvals.create("home", Gate(f"done-{n}", "Sure?", id=f"done-{n}"))
        w.approvals.answer(f"done-{n}", "approved", by="ana")
        w.nodes.put("home", NodeRef(f"n-{n}"), state="pending")
        w.executions.start(
            "home:skill",
            run_id="home",
            node=NodeRef(f"n-{n}"),
            options=ExecutionOptions(id=f"ex-{n}", details={"n": n}),
        )
        w.executions.finish(f"ex-{n}", "succeeded", usage=Usage(input_tokens=3))
        w.loops.put("home", f"l-{n}", iteration=n)
        w.overrides.put(f"other-{n}", enabled=False, by="ana")
        w.workers.announce(f"worker-{n}", workflow_names=[f"wf-{n}"], app_versions=["1.0"])
        _fill_journal(store, n)
        _fill_outputs(store, n, now)
        _fill_chats_and_crons(store, n)
        _fill_conversations(store, n)
        _fill_checkpoints(store, n)
        _fill_states(store, n)


def _fill_journal(store: StateStore, n: int) -> None:
    j = store.journal
    j.events.append_many("home", [NewEvent("e", {"n": n})])
    j.signals.send("home", "go", {"n": n}, signal_id=f"s-{n}")
    j.frames.append("home", element("step", text(f"frame {n}"), id="s"), mounted_task_ids=["a"])
    call = j.tool_calls.create("home", "grep", input={"n": n}, call_id=f"c-{n}")
    j.tool_calls.finish("home", call.seq, ToolOutcome("succeeded", output={"n": n}))
    j.sandboxes.put("home", f"sb-{n}", SandboxChanges(runtime="docker", status="running"))
    j.scores.record(NewScore("home", f"n-{n}", "scorer", "Scorer", "live", n / 2, reason="r", id=f"score-{n}"))


def _fill_outputs(store: StateStore, n: int, now: datetime) -> None:
    o = store.outputs
    if n == 0:
        o.inputs.ensure("home", {"n": 0})
    else:
        o.inputs.override("home", {"n": n}, expected_revision=n - 1, reason="r", created_by="ana")
    report = Report(title="t", score=n, weight=1.5, done=True, at=now, tags=["a"])
    o.results.put("report", "home", f"n-{n}", report)
    o.results.put("report", "home", f"n-{n}", {**report.model_dump(), "score": 9})
    o.cache.ensure(CacheKey("wf", f"n-{n}", {"n": n}), "report", report, source_run_id="home")


def _fill_conversations(store: StateStore, n: int) -> None:
    c = store.conversations
    contract = {"files": [n]}
    c.sessions.create(
        NewSession(
            f"talk-{n}", "n", node_metadata={"n": n}, extra={"x": 1}, status="running", artifact_contract=contract
        )
    )
    c.lifecycle.heartbeat(f"talk-{n}", "w")
    c.lifecycle.record_verification(f"talk-{n}", {"status": "passed"})
    c.branches.create("talk-0", NewBranch(id=f"branch-{n}", name="n", node_metadata={"n": n}, extra={"x": 1}))
    said = NewMessage("user", {"n": n}, id=f"msg-{n}", sender="ana", node_metadata={"n": n}, extra={"x": 1})
    c.branches.append(f"branch-{n}", [said])
    c.vectors.put(f"own-{n}", [NewChunk("chunk", "text", [1, n], {"n": n})])
    c.vectors.put("ns-0", [NewChunk(f"chunk-{n}", "text", [1, n], {"n": n}, "doc", n)])
    c.exchange.join("channel", f"member-{n}")
    c.exchange.send(said, to=["owner", f"owner-{n}"])
    c.exchange.send(NewMessage("user", n, id=f"letter-{n}", sender="writer"), to=f"member-{n}")
    for i in range(ROWS if n == 0 else 0):
        c.exchange.send(NewMessage("user", n, id="circular", sender="chair"), to=f"member-{i}")
    c.lifecycle.transition("talk-0", "running", branch_id=f"branch-{n}", reason=Reason(evidence={"n": n}))


def _fill_checkpoints(store: StateStore, n: int) -> None:
    c, kept = store.checkpoints, Content("json", b"{}")
    for thread in ("thread-0", f"thread-{n}"):
        step = NewCheckpoint(f"step-{n}", kept, {"a": f"{n}"}, {"a": Content("json", b"%d" % n)}, metadata={"n": n})
        c.put(thread, step, user="ana")
        c.put_writes(thread, f"step-{n}", "task", [NewWrite(0, "a", kept)])


def _fill_states(store: StateStore, n: int) -> None:
    store.states.put(f"key-{n}", {"n": n}, scope="scope", user="ana")
    store.states.put("key", {"n": n}, scope=f"scope-{n}")


def _fill_chats_and_crons(store: StateStore, n: int) -> None:
    m, s = store.messaging, store.schedules
    m.sessions.create(ConversationKey("chat", "c", "u", f"t-{n}"), session_id=f"ms-{n}")
    m.messages.append_many("ms-0", [MessageDraft("user", f"hello {n}", platform_message_id=f"pm-{n}")])
    s.crons.put(f"cron-{n}", CronSpec("* * * * *", "wf", payload={"n": n}))
    s.fires.create(f"fired-{n}", owner="w", lease=timedelta(minutes=1))
    s.overrides.put(f"cron-{n}", enabled=True, by="ana")
