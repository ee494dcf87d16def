"""The kinds of facts in a timeline: the table of each, its order, and its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.lists.covering import Covering, NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Row, constant
from lastlight_state.journal.models import EVENTS, SIGNALS
from lastlight_state.maintenance.timeline.phases import Phases
from lastlight_state.maintenance.timeline.records import TimelineEntry
from lastlight_state.outputs.models import INPUTS
from lastlight_state.workflows.repos import preview
from lastlight_state.workflows.sentences import change_text
from lastlight_state.workflows.shared.executions import BY_RUN, MICROS, OUTCOME, usage_covering
from lastlight_state.workflows.shared.transitions import first_line
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, TRANSITIONS
from lastlight_state.workflows.words import QUESTION_NOTES, TERMINAL, dollars_of

_FIRST_TEXT, _LAST_TEXT = "", "\U0010ffff"
_FIRST_NUMBER, _LAST_NUMBER = -1, 2**63 - 1

#: Reasons of transitions whose details no other fact of the timeline has.
_EXPLAINED = ("run.requeued", "run.paused.signal", "run.paused.timer", "claim.taken_over", "claim.gave_up")

TEXT_KEYS = (_FIRST_TEXT, _LAST_TEXT)
NUMBER_KEYS = (_FIRST_NUMBER, _LAST_NUMBER)
#: The number before the first number of every list.
NO_NUMBER = _FIRST_NUMBER


@dataclass(frozen=True)
class Fact:
    """A kind of fact. ``bounds`` are two keys: one before and one after all keys of its list.

    ``at`` is the column of the time for a list in the order of its numbers. Setting back a clock does not change this
    order. Other lists are in the order of time: they have no numbers, or callers give the times.
    """

    source: str
    listing: Listing | Phases
    bounds: tuple[Any, Any]
    text: Callable[[Row], str]
    actor: str | None = None
    at: str | None = None

    def entry(self, row: Row, at: datetime) -> TimelineEntry:
        """Return the timeline entry of a row, with ``at`` as its time."""
        actor = row[self.actor] if self.actor else None
        clock = row[self.at] if self.at and row[self.at] != at else None
        key = str(self.listing.key(row)[-1])
        return TimelineEntry(source=self.source, key=key, at=at, clock=clock, actor=actor, text=self.text(row))


def _of_run(
    name: str,
    table: sa.Table,
    run_id: str,
    order: tuple[str, str],
    shown: tuple[Any, ...],
    *always: sa.ColumnElement[bool],
    through: str | None = None,
    covering: Covering | None = None,
    few: bool = False,
) -> Listing:
    at, key = (table.c[column] for column in order)
    return Listing(
        f"timeline.{name}",
        (at, key, *shown),
        order=(at, key),
        filters={"run_id": table.c[run_id] == sa.bindparam("run_id")},
        always=(at.is_not(None), *always),
        descending=False,
        through=through,
        covering=covering,
        few=few,
    )


def numbered_listing(
    name: str, table: sa.Table, order: tuple[str, str], shown: tuple[Any, ...], *always: sa.ColumnElement[bool]
) -> Listing:
    """Return a listing of a run's facts by number, with the time of each.

    ``order`` names the columns of time and number.
    """
    at, number = (table.c[column] for column in order)
    return Listing(
        f"timeline.{name}",
        (at, number, *shown),
        order=(number,),
        filters={"run_id": table.c.run_id == sa.bindparam("run_id")},
        always=(at.is_not(None), *always),
        descending=False,
    )


def _transition_text(row: Row) -> str:
    return change_text(row["from_status"], row["to_status"], row["reason"])


def detailed_text(row: Row) -> str:
    """Return the text of a transition, followed by the first line of its detail."""
    text, detail = _transition_text(row), first_line(row["detail"])
    return text if detail is None else f"{text}: {detail}"


def _explained_text(row: Row) -> str:
    """Return a transition's text, with its detail if an operator or the engine gave one that no other fact shows."""
    is_end = row["source"] == "engine" and row["to_status"] in TERMINAL
    explained = is_end or row["source"] == "operator" or row["reason"] in _EXPLAINED
    return detailed_text(row) if explained else _transition_text(row)


def _asked_text(row: Row) -> str:
    return f"gate {row['gate']} asks for {'a reply' if row['kind'] == 'reply' else 'approval'}"


def _answered_text(row: Row) -> str:
    answered = "replied" if row["kind"] == "reply" and row["status"] == "approved" else row["status"]
    return f"gate {row['gate']} {answered}"


def _explained_answer(row: Row) -> str:
    """Return the text of an answer, followed by the first line of the person's response."""
    said = first_line(row["response"])
    return _answered_text(row) if said is None else f"{_answered_text(row)}: {said}"


def _requested_text(row: Row) -> str:
    return f"{row['node_id']} asks for {_WANTED.get(row['kind'], row['kind'])}"


def _responded_text(row: Row) -> str:
    return f"{row['node_id']} {row['status']}"


def _started_text(row: Row) -> str:
    attempt = f", attempt {row['attempt']}" if row["attempt"] is not None else ""
    return f"{row['skill']} started{attempt}"


def _finished_text(row: Row) -> str:
    parts = [f"{row['skill']} {row['outcome']}"]
    if row["duration_ms"] is not None:
        parts.append(f"after {row['duration_ms'] / 1000:.1f} s")
    if row["turns"] is not None:
        parts.append("1 turn" if row["turns"] == 1 else f"{row['turns']} turns")
    if row["micros"] is not None:
        parts.append(f"${dollars_of(row['micros']):.4f}")
    if row["stop_reason"] not in (None, row["outcome"]):
        parts.append(row["stop_reason"])
    error = first_line(row["error"])
    return ", ".join(parts) if error is None else f"{', '.join(parts)}: {error}"


def _input_text(row: Row) -> str:
    return "input given" if row["revision"] == 0 else f"input overridden ({row['reason']:.80})"


def received_text(row: Row) -> str:
    return f"signal {row['signal_name']} received"


def _taken_text(row: Row) -> str:
    return f"signal {row['signal_name']} taken"


def event_text(row: Row) -> str:
    return f"{row['type']} of {row['node_id']}" if row["node_id"] is not None else f"{row['type']}"


def _has_expired(status: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a status is expired.

    It uses `coalesce` so that no index on status is used, which would read the expired rows of all runs.
    """
    expired: sa.ColumnElement[bool] = sa.func.coalesce(status, sa.literal_column("''")) == constant("expired")
    return expired


#: Where large values lie in the rows, gates are found by their run and shown from the index of their summaries.
_GATES = Covering(
    "ix_approvals_summary",
    ("created_at", "id"),
    {"": NarrowIndex("ix_approvals_run", ("workflow_run_id",), ordered=False)},
)
_REQUESTS = "ix_human_requests_summary"
_EXECUTIONS = usage_covering(BY_RUN)

_WANTED = {"text": "an answer", "confirm": "a confirmation", "select": "a choice", "form": "a form"}

_a, _e, _t, _r, _i = APPROVALS.c, EXECUTIONS.c, TRANSITIONS.c, REQUESTS.c, INPUTS.c
_s, _j = SIGNALS.c, EVENTS.c

#: The kinds of facts, in the order for facts of one moment. Transitions that are notes about questions are left out,
#: because questions are facts themselves.
FACTS = (
    Fact(
        "transition",
        numbered_listing(
            "transitions",
            TRANSITIONS,
            ("at", "seq"),
            (_t.from_status, _t.to_status, _t.reason, _t.actor, _t.source, _t.detail),
            _t.reason.not_in([sa.literal(reason) for reason in QUESTION_NOTES]),
        ),
        NUMBER_KEYS,
        _explained_text,
        actor="actor",
        at="at",
    ),
    Fact(
        "input",
        numbered_listing("inputs", INPUTS, ("created_at", "revision"), (_i.created_by, _i.reason)),
        NUMBER_KEYS,
        _input_text,
        actor="created_by",
        at="created_at",
    ),
    Fact(
        "approval",
        _of_run(
            "asked",
            APPROVALS,
            "workflow_run_id",
            ("created_at", "id"),
            (_a.gate, _a.kind, _a.requested_by),
            covering=_GATES,
        ),
        TEXT_KEYS,
        _asked_text,
        actor="requested_by",
    ),
    Fact(
        "approval",
        _of_run(
            "answered",
            APPROVALS,
            "workflow_run_id",
            ("responded_at", "id"),
            (_a.gate, _a.kind, _a.status, _a.responded_by, preview(_a.response).label("response")),
            covering=_GATES,
        ),
        TEXT_KEYS,
        _explained_answer,
        actor="responded_by",
    ),
    Fact(
        "approval",
        _of_run(
            "expired",
            APPROVALS,
            "workflow_run_id",
            ("expires_at", "id"),
            (_a.gate, _a.kind, _a.status),
            _has_expired(_a.status),
            covering=_GATES,
        ),
        TEXT_KEYS,
        _answered_text,
    ),
    Fact(
        "human_request",
        _of_run("requested", REQUESTS, "run_id", ("requested_at", "id"), (_r.node_id, _r.kind), through=_REQUESTS),
        TEXT_KEYS,
        _requested_text,
    ),
    Fact(
        "human_request",
        _of_run(
            "responded",
            REQUESTS,
            "run_id",
            ("answered_at", "id"),
            (_r.node_id, _r.status, _r.answered_by),
            through=_REQUESTS,
        ),
        TEXT_KEYS,
        _responded_text,
        actor="answered_by",
    ),
    Fact(
        "human_request",
        _of_run(
            "lapsed",
            REQUESTS,
            "run_id",
            ("expires_at", "id"),
            (_r.node_id, _r.status),
            _has_expired(_r.status),
            through=_REQUESTS,
        ),
        TEXT_KEYS,
        _responded_text,
    ),
    Fact(
        "execution",
        _of_run(
            "started",
            EXECUTIONS,
            "workflow_run_id",
            ("started_at", "id"),
            (_e.skill, _e.attempt),
            covering=_EXECUTIONS,
            few=True,
        ),
        TEXT_KEYS,
        _started_text,
    ),
    Fact(
        "execution",
        _of_run(
            "finished",
            EXECUTIONS,
            "workflow_run_id",
            ("finished_at", "id"),
            (_e.skill, OUTCOME, _e.duration_ms, _e.turns, MICROS.label("micros"), _e.stop_reason, _e.error),
            covering=_EXECUTIONS,
            few=True,
        ),
        TEXT_KEYS,
        _finished_text,
    ),
    Fact(
        "signal",
        _of_run("received", SIGNALS, "run_id", ("received_at", "seq"), (_s.signal_name, _s.received_by)),
        NUMBER_KEYS,
        received_text,
        actor="received_by",
    ),
    Fact(
        "signal",
        _of_run("taken", SIGNALS, "run_id", ("consumed_at", "seq"), (_s.signal_name, _s.consumed_by)),
        NUMBER_KEYS,
        _taken_text,
        actor="consumed_by",
    ),
    Fact(
        "event",
        _of_run("events", EVENTS, "run_id", ("occurred_at", "seq"), (_j.type, _j.node_id)),
        NUMBER_KEYS,
        event_text,
    ),
)

#: The ranks of the facts that are in the order of their numbers.
NUMBERED = tuple(rank for rank, fact in enumerate(FACTS) if fact.at)
