"""The replay of one agent session.

Its events are written to the log, and its usage to the execution, as they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from lastlight_state import codec
from lastlight_state.files.agent_log import Cwd
from lastlight_state.messaging import ConversationKey
from lastlight_state.store import StateStore
from lastlight_state.workflows import Trigger, Usage

# The recorded events of the demo's agent, as its runtime prints them, one JSON object per line. A ``session`` event
# begins a segment, in which a single process drove the agent. An interrupted session has two segments. The first of
# them ends in a tool call without an answer.

Event: TypeAlias = "dict[str, Any]"

_COUNTS = ("input", "output", "cacheWrite", "cacheRead")


@dataclass(frozen=True)
class Segment:
    """A recorded segment: session ``name``, the agent's working directory, its prompt, and the events that followed."""

    name: str
    cwd: str
    prompt: str
    events: tuple[Event, ...]

    @property
    def is_cut(self) -> bool:
        """True if the segment ended because the process was killed while a tool was running."""
        last: str = self.events[-1]["type"]
        return last == "tool_execution_start"

    @property
    def last_text(self) -> str:
        """Return the agent's last text."""
        return next(text for event in reversed(self.events) if (text := _text(event, "assistant")))


class Meter:
    """Sums the usage that an agent's messages report."""

    def __init__(self) -> None:
        self._turns = 0
        self._tokens = dict.fromkeys(_COUNTS, 0)
        self._cost = Decimal(0)
        self._model: str | None = None

    def feed(self, event: Event) -> bool:
        """Count an event. Returns True if it reported usage."""
        message = event.get("message", {})
        if event["type"] != "message_end" or message.get("role") != "assistant":
            return False
        usage: Mapping[str, Any] = message["usage"]
        self._turns += 1
        self._model = message["model"]
        self._cost += Decimal(str(usage["cost"]["total"]))
        for name in _COUNTS:
            self._tokens[name] += usage[name]
        return True

    @property
    def usage(self) -> Usage:
        """Return the totals so far."""
        given, made, cached_new, cached = (self._tokens[name] for name in _COUNTS)
        return Usage(
            turns=self._turns,
            input_tokens=given,
            output_tokens=made,
            cache_creation_input_tokens=cached_new,
            cache_read_input_tokens=cached,
            cost_usd=self._cost,
            model=self._model,
        )


@cache
def segments(name: str) -> tuple[Segment, ...]:
    """Return the segments of a session, in the order they were recorded."""
    return tuple(segment for segment in _all_segments() if segment.name == name)


@cache
def _all_segments() -> tuple[Segment, ...]:
    events = list(_events())
    starts = [i for i, event in enumerate(events) if event["type"] == "session"]
    return tuple(_segment(events[i:j]) for i, j in zip(starts, [*starts[1:], len(events)], strict=True))


def _segment(events: list[Event]) -> Segment:
    head, *rest = events
    prompt = next(text for event in rest if (text := _text(event, "user")))
    return Segment(head["id"], head["cwd"], prompt, tuple(_drop_time(event) for event in rest))


def _events() -> Iterator[Event]:
    for line in files(__package__).joinpath("stream.jsonl").read_bytes().splitlines():
        yield codec.load_line(line)


def _text(event: Event, role: str) -> str:
    message = event.get("message", {})
    if event["type"] != "message_end" or message.get("role") != role:
        return ""
    return "\n".join(block["text"] for block in message["content"] if block["type"] == "text")


def _drop_time(event: Event) -> Event:
    """Return the event without its recorded time, so that the current time is used."""
    return {name: value for name, value in event.items() if name != "timestamp"}


# The demo's workflow.

WORKFLOW = "issue-to-pr"
TRIGGER = Trigger(
    "acme/weather#42", type="webhook", owner="acme", repo="weather", issue_number=42, actor="maria", actor_type="github"
)
CONTEXT = {"issue": {"number": 42, "title": "Forecast endpoint fails for some cities", "labels": ["bug", "customer"]}}
CHAT = ConversationKey("slack", "C-weather", "maria", "1768381200.000100")
APPROVER = "maria"


@dataclass(frozen=True)
class Step:
    """A phase of the workflow, and the name of its recorded session.

    The gate that ``gate`` names is opened after the phase. The phase's last text is stored as the output of the loop
    that ``keeps`` names. The output of the loop that ``reads`` names is appended to the phase's prompt.
    """

    phase: str
    gate: str | None = None
    keeps: str | None = None
    reads: str | None = None

    @property
    def skill(self) -> str:
        """Return the skill name of the phase's executions."""
        return f"{WORKFLOW}:{self.phase}"


STEPS = (
    Step("architect", gate="post_architect", keeps="plan"),
    Step("executor", reads="plan"),
    Step("reviewer", keeps="review"),
    Step("reviewer_fix_1", reads="review"),
    Step("reviewer_1", gate="post_reviewer", keeps="review"),
)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay: number of events, lines written, and usage."""

    events: int
    lines: int
    usage: Usage


def replay(
    store: StateStore,
    segment: Segment,
    *,
    session_id: str,
    prompt: str,
    execution_id: str,
    stuck: Callable[[], object] = lambda: None,
) -> Replayed:
    """Send a segment's events to the log of ``session_id``, and store the usage after each message of the agent.

    If the segment ends in a tool call without a result, ``stuck`` is called while the log is open.
    """
    meter = Meter()
    place = Cwd(segment.cwd)
    with store.agent_log.writer.open(place=place, session_id=session_id, prompt=prompt) as log:
        for event in segment.events:
            log.feed(event)
            if meter.feed(event):
                store.workflows.executions.update(execution_id, usage=meter.usage)
        if segment.is_cut:
            stuck()
        return Replayed(len(segment.events), log.lines_written, meter.usage)
