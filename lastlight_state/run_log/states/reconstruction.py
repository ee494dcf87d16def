"""A session's state made of the logs of its runs, for one whose snapshot is lost."""

from __future__ import annotations

from lastlight_state.errors import NotFound
from lastlight_state.run_log import words
from lastlight_state.run_log.messages import normalise
from lastlight_state.run_log.reading import RunReading
from lastlight_state.run_log.records import LlmRequest, LlmResponse
from lastlight_state.run_log.runs.lists import RunLists
from lastlight_state.run_log.states.records import SessionState
from lastlight_state.run_log.tree import RunFile, RunTree

#: The newest runs that are looked through for a prompt.
_MOST_RUNS = 100


class Reconstruction:
    """Makes states of logs."""

    def __init__(self, tree: RunTree, lists: RunLists) -> None:
        self._tree = tree
        self._lists = lists

    def of(self, session_id: str) -> SessionState | None:
        """The state after the last prompt of the session's newest run that has one."""
        for file in self._lists.newest(session_id, _MOST_RUNS):
            state = self._after(session_id, file)
            if state is not None:
                return state
        return None

    def _after(self, session_id: str, file: RunFile) -> SessionState | None:
        request: LlmRequest | None = None
        response: LlmResponse | None = None
        try:
            for record in RunReading(self._tree, file, types=("llm.request", "llm.response")):
                if isinstance(record, LlmRequest):
                    request, response = record, None
                elif isinstance(record, LlmResponse) and request is not None and record.seq == request.seq:
                    response = response or record
        except NotFound:  # removed meanwhile
            return None
        if request is None:
            return None
        messages = [*request.input.messages, *(response.output.messages if response else ())]
        return SessionState(
            session_id=session_id,
            updated_at=(response or request).ts,
            run_id=file.run_id,
            invoke_seq=request.seq,
            messages=normalise(messages).messages,
            meta={words.RECONSTRUCTED: True},
        )
