"""The journal domain: events, signals, frames, tool calls, sandboxes and scores of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Context, Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.db.runs import Waking
    from lastlight_state.journal.arguments import (
        ANY as ANY,
        EventFilter as EventFilter,
        NewEvent as NewEvent,
        NewScore as NewScore,
        SandboxChanges as SandboxChanges,
        ScoreFilter as ScoreFilter,
        SignalFilter as SignalFilter,
        TaskAttempt as TaskAttempt,
        ToolCallFilter as ToolCallFilter,
        ToolOutcome as ToolOutcome,
        WriterOptions as WriterOptions,
    )
    from lastlight_state.journal.events import Events
    from lastlight_state.journal.frames import Frames
    from lastlight_state.journal.records import (
        Appended as Appended,
        Event as Event,
        Frame as Frame,
        FrameCheck as FrameCheck,
        FrameDelta as FrameDelta,
        FrameSummary as FrameSummary,
        QueuedEvent as QueuedEvent,
        Sandbox as Sandbox,
        SandboxSummary as SandboxSummary,
        Score as Score,
        ScoreAggregate as ScoreAggregate,
        ScoreSummary as ScoreSummary,
        Signal as Signal,
        SignalSent as SignalSent,
        ToolCall as ToolCall,
        ToolCallSummary as ToolCallSummary,
        WriterStats as WriterStats,
    )
    from lastlight_state.journal.sandboxes import Sandboxes
    from lastlight_state.journal.scores import Scores
    from lastlight_state.journal.shared import Ended
    from lastlight_state.journal.signals import Signals
    from lastlight_state.journal.tool_calls import ToolCalls
    from lastlight_state.journal.writer import JournalWriter as JournalWriter, PendingEvent as PendingEvent
    from lastlight_state.journal.writer.mirrors import LineFileMirror as LineFileMirror
    from lastlight_state.journal.writer.registry import Writer

public(
    globals(),
    {
        "arguments": "ANY EventFilter NewEvent NewScore SandboxChanges ScoreFilter SignalFilter TaskAttempt "
        "ToolCallFilter ToolOutcome WriterOptions",
        "records": "Appended Event Frame FrameCheck FrameDelta FrameSummary QueuedEvent Sandbox SandboxSummary"
        " Score ScoreAggregate ScoreSummary Signal SignalSent ToolCall ToolCallSummary WriterStats",
        "writer": "JournalWriter PendingEvent",
        "writer.mirrors": "LineFileMirror",
    },
    "Journal",
)


class Journal(Face):
    """``store.journal``: records of what happened in runs.

    Another domain stores the runs themselves. It passes two functions to this class: ``waking`` wakes a run that waits
    for a signal, and ``ended`` returns which of the given runs have ended.
    """

    def __init__(self, context: Context, waking: Waking, ended: Ended | None = None) -> None:
        super().__init__(context)
        self.waking = waking
        self.ended = ended

    #: Events of runs, numbered without gaps.
    events: Part[Events] = Part(
        "lastlight_state.journal.events.Events", lambda face, kind: kind(face._context, face.ended)
    )
    #: Factory of queued writers of events.
    writer: Part[Writer] = Part("lastlight_state.journal.writer.registry.Writer")
    #: Messages sent into runs from outside. Each is taken once.
    signals: Part[Signals] = Part(
        "lastlight_state.journal.signals.Signals", lambda face, kind: kind(face._context, face.waking)
    )
    #: Trees that runs rendered, step by step.
    frames: Part[Frames] = Part("lastlight_state.journal.frames.Frames")
    #: Every invocation of a tool.
    tool_calls: Part[ToolCalls] = Part("lastlight_state.journal.tool_calls.ToolCalls")
    #: Sandboxes in which parts of runs work.
    sandboxes: Part[Sandboxes] = Part("lastlight_state.journal.sandboxes.Sandboxes")
    #: Scores that scorers gave to attempts of tasks.
    scores: Part[Scores] = Part("lastlight_state.journal.scores.Scores")
