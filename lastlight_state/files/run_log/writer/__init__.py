"""RunWriter: appends the records of one run to its log.

A call returns after its line was handed to the operating system, or raises; there is no queue. The record is serialised
before the call returns, so later changes to the caller's objects have no effect.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from lastlight_state.clock import Clock
from lastlight_state.codec import dump_line
from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.valid import argument_group
from lastlight_state.errors import BackendError, StoreClosed
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.fields import (
    JsonObject,
    LlmInput,
    LlmOutput,
    Model,
    OutputRef,
    RunErrorInfo,
    RunInput,
)
from lastlight_state.files.run_log.paths import OnError, RunOutcome, RunStatusWord
from lastlight_state.files.run_log.records import (
    AgentEvent,
    CustomRecord,
    LlmRequest,
    LlmResponse,
    Logged,
    RunContext,
    RunEnd,
    RunError,
    RunRecord,
    RunStart,
    RunStatus,
    ToolOutput,
    build_record,
    part,
)
from lastlight_state.files.run_log.storage import LockFile
from lastlight_state.files.run_log.writer.rules import Rules
from lastlight_state.locks import RLock

_log = logging.getLogger(__name__)

#: Records that ``sync="end"`` syncs to disk, besides terminal statuses.
_ENDS = (RunError, RunEnd)


class Hold(NamedTuple):
    """The resources of an open writer: the lock of the run, and the log file."""

    lock: LockFile
    lines: LineWriter
    clock: Clock
    on_error: OnError


class RunWriter:
    """Writes the log of one run. Usable from several threads; a context manager.

    ``ended`` is True if the log has its ``run.end``; then only late tool outputs and ``x.`` records may follow, marked
    in their ``meta``. ``failed_appends`` counts records that could not be written. Each method also takes ``ts``, the
    record's time, which defaults to now. All methods raise `InvalidValue` for a record that breaks a rule or cannot be
    written; then nothing is written. The methods also raise `PayloadTooLarge` beyond 64 MiB, `Conflict` after the end,
    `BackendBusy`, `BackendUnavailable`, `UnsafePath` and `StoreClosed`. A failed record is not retried.
    """

    def __init__(self, rules: Rules, hold: Hold) -> None:
        self.run_id = rules.run_id
        self.path: Path = hold.lines.path
        self.failed_appends = 0
        self._rules = rules
        self._hold = hold
        self._lock = RLock()
        self._is_closed = False
        files.renew_after_fork(self)

    @property
    def ended(self) -> bool:
        """True if the run has ended."""
        return self._rules.ended

    @guard_arguments
    def append(self, record: RunRecord) -> None:
        """Append a record. If it was read from a log, its bytes are kept.

        A custom record gets its missing run id and time.
        """
        with self._lock:
            self._append(self._complete_record(argument_group("record", record, Logged)))

    @guard_arguments
    def run_start(
        self,
        input: RunInput | str,  # noqa: A002 - the field's name
        *,
        ui_context: Any = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write the run's input. May be called once."""
        given = RunInput(text=input) if isinstance(input, str) else part("input", RunInput, input)
        session = {"session_id": self._rules.session_id} if self._rules.session_id is not None else {}
        self._put(RunStart, {**session, "input": given, "ui_context": ui_context}, meta, ts)

    @guard_arguments
    def context(self, left_percent: float, *, meta: JsonObject | None = None, ts: datetime | None = None) -> None:
        """Write the percentage of the model's context that is left, from 0 to 100."""
        self._put(RunContext, {"context_left_percent": left_percent}, meta, ts)

    @guard_arguments
    def event(
        self,
        event: Mapping[str, Any],
        *,
        seq: int | None = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> int:
        """Write an event for display.

        Returns its number. Numbers count up from 0. If the caller gives numbers, they may have gaps.
        """
        with self._lock:
            seq = self._rules.last_event + 1 if seq is None else seq
            self._put(AgentEvent, {"seq": seq, "event": dict(event)}, meta, ts)
            return seq

    @guard_arguments
    def tool_output(
        self,
        tool: str,
        *,
        tool_call_id: str,
        result_raw: str,
        is_error: bool | None = None,
        output_ref: OutputRef | Mapping[str, Any] | None = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write the whole output of a tool, never shortened."""
        reference = None if output_ref is None else part("output_ref", OutputRef, output_ref)
        fields = {"tool": tool, "tool_call_id": tool_call_id, "result_raw": result_raw}
        self._put(ToolOutput, {**fields, "is_error": is_error, "output_ref": reference}, meta, ts)

    @guard_arguments
    def llm_request(
        self,
        input: LlmInput | Mapping[str, Any],  # noqa: A002 - the field's name
        *,
        seq: int | None = None,
        model: Model | Mapping[str, Any] | None = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> int:
        """Write the exact prompt of an invocation. Returns its number, which `llm_response` needs."""
        given = part("input", LlmInput, input)
        asked = None if model is None else part("model", Model, model)
        with self._lock:
            seq = self._rules.last_request + 1 if seq is None else seq
            self._put(LlmRequest, {"seq": seq, "model": asked, "input": given}, meta, ts)
            return seq

    @guard_arguments
    def llm_response(
        self,
        seq: int,
        output: LlmOutput | Mapping[str, Any],
        *,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write the answer to the open request ``seq``."""
        self._put(LlmResponse, {"seq": seq, "output": part("output", LlmOutput, output)}, meta, ts)

    @guard_arguments
    def status(
        self,
        status: RunStatusWord,
        *,
        message: str | None = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write the current status of the run."""
        self._put(RunStatus, {"status": status, "message": message}, meta, ts)

    @guard_arguments
    def error(
        self,
        error: BaseException | RunErrorInfo | Mapping[str, Any],
        *,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write an error: an exception with its traceback, or the given fields."""
        told = _error_info(error) if isinstance(error, BaseException) else part("error", RunErrorInfo, error)
        self._put(RunError, {"error": told}, meta, ts)

    @guard_arguments
    def end(
        self,
        outcome: RunOutcome,
        *,
        final: str | None = None,
        meta: JsonObject | None = None,
        ts: datetime | None = None,
    ) -> None:
        """Write the end of the run, with the final answer if there is one."""
        self._put(RunEnd, {"outcome": outcome, "final": final}, meta, ts)

    def flush(self) -> None:
        """Sync all written records to disk now (fsync)."""
        with self._lock:
            self._refuse_if_closed()
            self._hold.lines.sync()

    def close(self) -> None:
        """Close the log and release the run. Writes no ``run.end``. Closing again does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._hold.lines.close()
            except BackendError as error:
                self._raise_or_log(error)
            finally:
                self._hold.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log. If the block raised, the exception is recorded before, as an error or as a cancellation."""
        try:
            if error is not None and not self._is_closed:
                self._record_failure(error)
        finally:
            self.close()

    def after_fork(self) -> None:
        """Close the writer in a forked child, because the run stays its parent's."""
        self._lock = RLock()
        self._is_closed = True

    def _put(self, kind: type[Logged], fields: Mapping[str, Any], meta: JsonObject | None, ts: datetime | None) -> None:
        """Write a record of these fields, leaving out those that are None."""
        given = {name: value for name, value in {**fields, "meta": meta}.items() if value is not None}
        with self._lock:
            now = self._hold.clock.now() if ts is None else ts
            self._append(build_record(kind, {"run_id": self.run_id, "ts": now, **given}))

    def _append(self, record: Any) -> None:
        self._refuse_if_closed()
        self._rules.check(record)
        self._write(record, self._line_of(record))

    def _complete_record(self, record: Any) -> Any:
        """Return a custom record, completed with the run id and the time if they are missing."""
        if not isinstance(record, CustomRecord) or record.raw is not None:
            return record
        now = {} if record.ts is not None else {"ts": self._hold.clock.now()}
        run = {} if record.run_id is not None else {"run_id": self.run_id}
        return record.model_copy(update=run | now) if run or now else record

    def _line_of(self, record: RunRecord) -> bytes:
        if self._rules.ended:
            value = record.to_json()
            meta = value.get("meta")
            marked = {**(meta if isinstance(meta, dict) else {}), paths.LATE: True}
            return dump_line({**value, "meta": marked}, where="record")
        return record.raw + b"\n" if record.raw is not None else dump_line(record.to_json(), where="record")

    def _write(self, record: RunRecord, line: bytes) -> None:
        is_end = isinstance(record, _ENDS) or (isinstance(record, RunStatus) and record.status in paths.TERMINAL)
        try:
            self._hold.lines.append([line], end=is_end)
        except BackendError as error:
            if self._hold.on_error == "report" or error.outcome == "unknown":
                self._rules.count(record)  # its number may already be in the file
            self._raise_or_log(error)
        else:
            self._rules.count(record)

    def _raise_or_log(self, error: BackendError) -> None:
        self.failed_appends += 1
        if self._hold.on_error == "raise":
            raise error
        _log.warning("a record of run %s was not written: %s", self.run_id, error)

    def _record_failure(self, error: BaseException) -> None:
        """Write the status, error and end that a run lacks after an exception has ended it."""
        outcome: RunOutcome = "error" if isinstance(error, Exception) else "cancelled"
        rules = self._rules
        try:
            if not rules.ended and rules.last_status not in paths.TERMINAL:
                self.status(outcome)
            if not rules.ended and outcome == "error" and not rules.has_error:
                self.error(error)
            if not rules.ended:
                self.end(outcome)
        except BackendError as failure:
            _log.warning("the end of run %s was not written: %s", self.run_id, failure)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StoreClosed(f"the writer of run {self.run_id!r} is closed")


def _error_info(error: BaseException) -> RunErrorInfo:
    return RunErrorInfo(name=type(error).__name__, message=str(error), stack="".join(traceback.format_exception(error)))
