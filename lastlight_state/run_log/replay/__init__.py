"""Replaying runs: their prompts as they were sent, their events as they were shown, and summaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from lastlight_state.db.gate import checked
from lastlight_state.db.valid import number
from lastlight_state.errors import NotFound
from lastlight_state.run_log import paths
from lastlight_state.run_log.reading import RunReading
from lastlight_state.run_log.records import AgentEvent, LlmRequest, LlmResponse, RunRecord, RunStart
from lastlight_state.run_log.replay.digest import Tally
from lastlight_state.run_log.replay.records import HistoryEvent, PromptTurn, RunDigest, SessionHistory
from lastlight_state.run_log.runs.heads import input_text
from lastlight_state.run_log.runs.lists import RunLists
from lastlight_state.run_log.tree import RunFile, RunTree

#: The event that stands for the input of a run.
INPUT_EVENT = "hidden_user_message"
INPUT_SEQ = -1


class Replay:
    """``store.run_log.replay``"""

    def __init__(self, tree: RunTree, lists: RunLists) -> None:
        self._tree = tree
        self._lists = lists

    @checked
    def prompts(self, run_id: str) -> Iterator[PromptTurn]:
        """The invocations in the order of their requests, each with the exact prompt that was sent. `NotFound` at once.

        Nothing is derived from events: compactions are already in the prompts. Of several records with one number the
        first counts. An invocation is given when its answer is met, so memory holds those that are not answered yet.
        """
        return self._turns(self._tree.get(run_id))

    @checked
    def prompt(self, run_id: str, seq: int) -> PromptTurn:
        """The invocation of this number. Raises `NotFound`."""
        for turn in self.prompts(run_id):
            if turn.seq == seq:
                return turn
        raise NotFound("llm_request", (run_id, seq))

    @checked
    def events(self, run_id: str, *, after_seq: int | None = None) -> list[AgentEvent]:
        """The events by ascending ``seq``, equal ones in file order; those behind ``after_seq``. For display only.

        Events of any type are given, ``compaction_start`` and ``compaction_complete`` among them. Raises `NotFound`.
        """
        return self._events(self._reading(self._tree.get(run_id)), after_seq)

    @checked
    def history(self, session_id: str, *, max_runs: int = 20, max_events: int = 1500) -> SessionHistory:
        """The events of a session's newest ``max_runs`` runs by their start, played oldest first; the last
        ``max_events`` of them.

        Each run begins with its input, an event ``hidden_user_message``. Runs that are damaged give what can be read.
        An unknown session has no runs.
        """
        paths.readable_id("session_id", session_id)
        number("max_runs", max_runs)
        number("max_events", max_events)
        found = self._lists.newest(session_id, max_runs) if max_events else []
        kept: deque[HistoryEvent] = deque(maxlen=max_events)
        total = 0
        for file in reversed(found):
            for event in self._played(file):
                kept.append(event)
                total += 1
        runs = tuple(file.run_id for file in reversed(found))
        return SessionHistory(session_id=session_id, runs=runs, events=tuple(kept), truncated=total > len(kept))

    @checked
    def summarise(self, run_id: str) -> RunDigest:
        """The summary of a run, read in one pass. Raises `NotFound`."""
        return Tally(self._reading(self._tree.get(run_id))).digest()

    def _reading(self, file: RunFile) -> RunReading:
        return RunReading(self._tree, file)

    def _turns(self, file: RunFile) -> Iterator[PromptTurn]:
        asked: dict[int, LlmRequest] = {}
        answers: dict[int, LlmResponse] = {}
        seen: set[int] = set()
        for record in self._reading(file):
            if isinstance(record, LlmRequest) and record.seq not in seen:
                seen.add(record.seq)
                asked[record.seq] = record
            elif isinstance(record, LlmResponse) and record.seq in asked and record.seq not in answers:
                answers[record.seq] = record
                yield from _complete(asked, answers)
        for seq, request in asked.items():
            yield PromptTurn(seq=seq, request=request, response=answers.get(seq))

    @staticmethod
    def _events(records: RunReading, after_seq: int | None) -> list[AgentEvent]:
        found = [record for record in records if isinstance(record, AgentEvent)]
        found.sort(key=lambda event: event.seq)
        return found if after_seq is None else [event for event in found if event.seq > after_seq]

    def _played(self, file: RunFile) -> Iterator[HistoryEvent]:
        """The input of a run and its events."""
        start: RunRecord | None = None
        events: list[AgentEvent] = []
        try:
            for record in self._reading(file):
                if isinstance(record, RunStart) and start is None:
                    start = record
                    text = input_text(record.input.to_json()) or ""
                    shown = {"type": INPUT_EVENT, "content": text}
                    yield HistoryEvent(run_id=file.run_id, seq=INPUT_SEQ, ts=record.ts, event=shown)
                elif isinstance(record, AgentEvent):
                    events.append(record)
        except NotFound:  # removed meanwhile
            return
        for event in sorted(events, key=lambda event: event.seq):
            yield HistoryEvent(run_id=file.run_id, seq=event.seq, ts=event.ts, event=event.event)


def _complete(asked: dict[int, LlmRequest], answers: dict[int, LlmResponse]) -> Iterator[PromptTurn]:
    """The first requests that have their answers, in order. They leave both dicts."""
    for seq in list(asked):
        if seq not in answers:
            return
        yield PromptTurn(seq=seq, request=asked.pop(seq), response=answers.pop(seq))
