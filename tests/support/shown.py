"""All that shows rows of a `filled_store`: lists, look-ups, and what takes or sweeps several rows at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from support.filled_store import EARLY, LATE, REPORTS, ROWS

from lastlight_state.db.rows.records import Page
from lastlight_state.maintenance.timeline import Timeline
from lastlight_state.outputs import CacheKey
from lastlight_state.workflows import NodeRef

#: A list: a page of it, and the name of an item.
Listed = tuple[Callable[..., Page[Any]], Callable[[Any], Any]]


def lists(store: Any) -> dict[str, Listed]:
    """Return every list of pages, by its name."""
    w, j, o, m, s = store.workflows, store.journal, store.outputs, store.messaging, store.schedules
    home = "home"
    by_id = lambda item: item.id  # noqa: E731
    return {
        "runs": (w.runs.list, by_id),
        "runs active first": (partial(w.runs.list, order="active_first"), by_id),
        "runs by status": (partial(w.runs.list, statuses=["running", "queued", "paused"]), by_id),
        "queue": (w.queue.list, by_id),
        "claimable": (w.claims.list_claimable, lambda item: item.run_id),
        "unhealthy": (w.health.list_unhealthy, by_id),
        "waiting": (partial(w.waits.list_waiting, "go"), by_id),
        "children": (partial(w.lookups.list_children, home), by_id),
        "transitions": (partial(w.lookups.list_transitions, home), lambda item: (item.run_id, item.seq)),
        "transitions oldest": (
            partial(w.lookups.list_transitions, "run-1", order="oldest"),
            lambda item: (item.run_id, item.seq),
        ),
        "names": (w.lookups.names, str),
        "repos": (w.lookups.repos, lambda item: item.repo),
        "errors": (partial(w.lookups.search_errors, "skill", since=EARLY), by_id),
        "nodes": (partial(w.nodes.list, home), lambda item: (item.node_id, item.iteration)),
        "due nodes": (partial(w.nodes.list_due, LATE), lambda item: (item.run_id, item.node_id)),
        "waiting nodes": (partial(w.nodes.list_waiting, "go"), lambda item: (item.run_id, item.node_id)),
        "executions": (w.executions.list, by_id),
        "executions of a run": (partial(w.executions.list, run_id=home), by_id),
        "loops": (partial(w.loops.list, home), lambda item: item.loop_id),
        "approvals": (w.approvals.list, by_id),
        "approvals of a run": (partial(w.approvals.list_for_run, "run-1"), by_id),
        "approval history": (partial(w.approvals.list_history, "home"), by_id),
        "pending approvals": (w.approvals.list_pending, by_id),
        "pending approvals of a run": (partial(w.approvals.list_pending, run_id="run-1"), by_id),
        "requests of a run": (partial(w.human_requests.list_for_run, "run-1"), by_id),
        "pending requests": (w.human_requests.list_pending, by_id),
        "workflow overrides": (w.overrides.list, lambda item: item.name),
        "threads": (partial(w.usage.list_threads, since=EARLY), lambda item: item.trigger_id),
        "events": (partial(j.events.list, home), lambda item: item.seq),
        "signals": (partial(j.signals.list, home), lambda item: item.seq),
        "frames": (partial(j.frames.list, home), lambda item: item.frame_no),
        "tool calls": (partial(j.tool_calls.list, home), lambda item: item.seq),
        "sandboxes": (partial(j.sandboxes.list, run_id=home), lambda item: item.sandbox_id),
        "scores": (j.scores.list, by_id),
        "inputs": (partial(o.inputs.list, home), lambda item: item.revision),
        "cache": (o.cache.list, lambda item: item.node_id),
        "output tables": (o.catalog.list, lambda item: item.key),
        "outputs": (partial(o.results.list, "report"), lambda item: item.node_id),
        "outputs with content": (partial(o.results.load, "report", home), lambda item: item.node_id),
        "output history": (partial(o.results.history, "report", home, "n-1"), lambda item: item.revision),
        "sessions": (m.sessions.list, by_id),
        "messages": (partial(m.messages.list, "ms-0"), by_id),
        "conversations": (store.conversations.sessions.list, by_id),
        "branches": (partial(store.conversations.branches.list, "talk-0"), by_id),
        "conversation messages": (store.conversations.messages.list, by_id),
        "namespaces": (store.conversations.vectors.namespaces, lambda item: item.namespace),
        "chunks": (partial(store.conversations.vectors.list, "ns-0"), by_id),
        "chunks of a document": (partial(store.conversations.vectors.list, "ns-0", document_id="doc"), by_id),
        "conversation transitions": (partial(store.conversations.lifecycle.history, "talk-0"), lambda item: item.seq),
        "conversation changes": (partial(store.conversations.changes.after, "talk-0"), lambda item: item.seq),
        "updated conversations": (partial(store.conversations.changes.updated_sessions, EARLY), by_id),
        "inbox": (partial(store.conversations.exchange.inbox, "owner"), lambda item: item.ord),
        "outbox": (partial(store.conversations.exchange.outbox, "writer"), by_id),
        "deliveries": (partial(store.conversations.exchange.deliveries, "circular"), lambda item: item.owner),
        "members": (partial(store.conversations.exchange.members, "channel"), lambda item: item.member),
        "checkpoint threads": (store.checkpoints.threads, lambda item: item.key),
        "checkpoints": (partial(store.checkpoints.list, "thread-0"), by_id),
        "whole checkpoints": (partial(store.checkpoints.history, "thread-0"), by_id),
        "states": (store.states.list, lambda item: (item.scope, item.key)),
        "states of a scope": (partial(store.states.items, scope="scope"), lambda item: item.key),
        "scopes of states": (store.states.scopes, str),
        "crons": (s.crons.list, lambda item: item.name),
        "fires": (s.fires.list, by_id),
        "cron overrides": (s.overrides.list, lambda item: item.name),
        "timeline": (partial(Timeline(store._context).list, "run-1"), lambda item: (item.source, item.key)),
        "timeline of the home": (partial(Timeline(store._context).list, home), lambda item: (item.source, item.key)),
    }


def bundles(store: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return what gives several rows without pages: lists of messages, sweeps, sums by key. No damaged rows."""
    w, m, s = store.workflows, store.messaging, store.schedules
    return {
        "history": (partial(m.messages.history, "ms-0"), lambda item: item.id),
        "since": (partial(m.messages.since, "ms-0", after=0), lambda item: item.id),
        "taken": (partial(w.claims.take_next, owner="w", limit=100), lambda item: item.run_id),
        "admitted": (partial(w.queue.admit_next, cap=100, owner="w", limit=100), lambda item: item.run_id),
        "given up": (w.claims.give_up, str),
        "expired queue": (partial(w.queue.expire, timedelta(minutes=1), reason="old"), str),
        "expired approvals": (w.approvals.expire_due, str),
        "expired requests": (w.human_requests.expire_due, str),
        "due crons": (partial(s.crons.take_due, owner="w", limit=100), lambda item: item.cron_name),
        "stale fires": (partial(s.fires.take_stale, owner="w", limit=100), lambda item: item.fire_id),
        "taken deliveries": (
            partial(store.conversations.exchange.take, "owner", reader="r", limit=100),
            lambda item: item.ord,
        ),
        "states": (partial(store.conversations.lifecycle.states, [f"talk-{n}" for n in range(ROWS)]), str),
        "activity": (partial(w.lookups.activity, "o", "r", since=EARLY), lambda item: item.workflow_name),
    }


def looks(store: Any, n: int) -> dict[str, Callable[[], Any]]:
    """Return what looks at the rows of a number."""
    w, j, o, m, s = store.workflows, store.journal, store.outputs, store.messaging, store.schedules
    return {
        "run": lambda: w.runs.get(f"run-{n}"),
        "resume": lambda: w.runs.get_resume(f"run-{n}"),
        "state": lambda: w.health.get_state(f"run-{n}"),
        "node": lambda: w.nodes.get("home", NodeRef(f"n-{n}")),
        "task": lambda: w.lookups.get_task("home", NodeRef(f"n-{n}")),
        "execution": lambda: w.executions.get(f"ex-{n}"),
        "loop": lambda: w.loops.find("home", f"l-{n}"),
        "approval": lambda: w.approvals.get(f"ap-{n}"),
        "request": lambda: w.human_requests.get(f"hr-{n}"),
        "override": lambda: w.overrides.find(f"other-{n}"),
        "event": lambda: j.events.get("home", n),
        "signal": lambda: j.signals.get("home", n),
        "frame": lambda: j.frames.get("home", n),
        "tool call": lambda: j.tool_calls.get("home", n),
        "sandbox": lambda: j.sandboxes.get("home", f"sb-{n}"),
        "score": lambda: j.scores.get(f"score-{n}"),
        "input": lambda: o.inputs.get("home", revision=n),
        "output table": lambda: o.catalog.entry(REPORTS[n]),
        "output": lambda: o.results.get("report", "home", f"n-{n}"),
        "cached": lambda: o.cache.find(CacheKey("wf", f"n-{n}", {"n": n}), "report"),
        "session": lambda: m.sessions.get(f"ms-{n}"),
        "message": lambda: m.messages.find_by_platform_id("chat", "c", f"pm-{n}"),
        "conversation": lambda: store.conversations.sessions.get(f"talk-{n}"),
        "conversation state": lambda: store.conversations.lifecycle.state(f"talk-{n}"),
        "branch": lambda: store.conversations.branches.get(f"branch-{n}"),
        "conversation message": lambda: store.conversations.messages.get(f"msg-{n}"),
        "chunk": lambda: store.conversations.vectors.get("ns-0", f"chunk-{n}"),
        "checkpoint thread": lambda: store.checkpoints.thread(f"thread-{n}"),
        "checkpoint": lambda: store.checkpoints.get("thread-0", f"step-{n}"),
        "kept state": lambda: store.states.get(f"key-{n}", scope="scope"),
        "cron": lambda: s.crons.get(f"cron-{n}"),
        "cron override": lambda: s.overrides.get(f"cron-{n}"),
    }
