"""What the store knows of the demo afterwards: timeline, cost, transcript."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lastlight_state.agent_log import LogLine, RawFile
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views import log_lines, timelines
from lastlight_state.cli.views.kinds import MESSAGES
from lastlight_state.cli.views.run_kinds import EXECUTIONS
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.messaging import MessagingMessageSummary
from lastlight_state.store import StateStore
from lastlight_state.workflows import ExecutionSummary, WorkflowRun

#: Lines of the transcript that are shown.
HEAD = 16


@dataclass(frozen=True)
class Told:
    """The story of one run and the chat beside it, as read from the store."""

    run: WorkflowRun
    events: tuple[TimelineEntry, ...]
    executions: Sequence[ExecutionSummary]
    messages: Sequence[MessagingMessageSummary]
    session_id: str
    transcript: Sequence[LogLine]
    whole_results: Sequence[RawFile]

    @property
    def cost_usd(self) -> Decimal:
        """What all of it cost."""
        return sum((found.cost_usd or Decimal(0) for found in self.executions), Decimal(0))

    @property
    def data(self) -> dict[str, Any]:
        """The story for programs."""
        return {
            "run_id": self.run.id,
            "status": self.run.status,
            "cost_usd": self.cost_usd,
            "events": self.events,
            "executions": self.executions,
            "messages": self.messages,
            "session_id": self.session_id,
        }

    def lines(self, screen: Screen) -> Iterator[Any]:
        """The story for people."""
        yield screen.heading(f"timeline of run {self.run.id}")
        yield from timelines.lines(self.events, screen)
        yield ""
        yield screen.heading("executions")
        yield from screen.table(EXECUTIONS, self.executions)
        tokens = sum((found.input_tokens or 0) + (found.output_tokens or 0) for found in self.executions)
        yield f"{len(self.executions)} executions, {tokens:,} tokens in and out, ${self.cost_usd:.4f}"
        yield ""
        yield screen.heading("chat")
        yield from screen.table(MESSAGES, self.messages)
        yield ""
        yield screen.heading(f"transcript of session {self.session_id}, which was killed and resumed")
        for line in self.transcript:
            yield log_lines.text_of(line, screen)
        yield "..."
        for kept in self.whole_results:
            yield f"a tool result of {kept.bytes:,} bytes is cut there, and kept whole beside the log"


def of(store: StateStore, run_id: str, chat_id: str) -> Told:
    """Read the story."""
    executions = [*store.workflows.executions.list(run_id=run_id), *store.workflows.executions.list(trigger_id=chat_id)]
    executions.sort(key=lambda found: found.started_at)
    session_id = next(found.session_id for found in executions if found.outcome == "interrupted") or ""
    return Told(
        run=store.workflows.runs.get(run_id),
        events=timelines.whole(store, run_id),
        executions=tuple(executions),
        messages=store.messaging.messages.list(chat_id).items[::-1],
        session_id=session_id,
        transcript=store.agent_log.reader.read(session_id, limit=HEAD).lines,
        whole_results=store.agent_log.raw.list(session_id),
    )
