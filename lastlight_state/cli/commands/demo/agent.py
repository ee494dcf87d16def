"""One session of the replayed agent: its events go to the log, its usage to the execution, as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lastlight_state.agent_log import Cwd
from lastlight_state.cli.commands.demo.recording import Meter, Segment
from lastlight_state.store import StateStore
from lastlight_state.workflows import Usage


@dataclass(frozen=True)
class Replayed:
    """How much was fed and written, and what it cost."""

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
    """Feed the segment to the log of ``session_id``, and report its usage after each message of the agent.

    ``stuck`` is called, with the log open, when the segment ends in a tool that never answers.
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
