"""The records of a run log: the header, nine kinds of events, custom records of other programs, and unknown records.

All are frozen. Fields that are not declared here are kept, at every depth, and are attributes as well. A record that
was read from a file keeps its exact bytes: ``raw`` returns them, `to_json` returns the JSON object that they encode,
and appending the record to another log writes the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import ValidationError

from lastlight_state import codec
from lastlight_state.db.gate import guard_arguments
from lastlight_state.errors import InvalidValue
from lastlight_state.files.jsonl.recovery import Accepts, Piece
from lastlight_state.files.run_log.fields import (
    Flag,
    JsonObject,
    LlmInput,
    LlmOutput,
    Model,
    Number,
    Open,
    OutputRef,
    Program,
    Prompts,
    RunErrorInfo,
    RunInput,
    Runtime,
    Text,
    Time,
    Tools,
    Whole,
)


class Logged(Open):
    """The base class of all records of a run log."""

    type: Text

    # Set only in an instance's __dict__: private attributes of pydantic cost as much as the validation.
    _raw: ClassVar[bytes | None] = None
    _recovered: ClassVar[bool] = False
    _problem: ClassVar[str | None] = None

    @property
    def raw(self) -> bytes | None:
        """Return the record's exact bytes without the newline; None for a record that was not read from a file."""
        return self._raw

    @property
    def recovered(self) -> bool:
        """True if the record was found inside a damaged line."""
        return self._recovered

    @property
    def problem(self) -> str | None:
        """Return why a record of a known type became an `UnknownRecord`: the field that does not fit.

        None for any other.
        """
        return self._problem

    def to_json(self) -> JsonObject:
        """Return the record as a JSON object: the one in its bytes if it was read, else of exactly the given fields."""
        return super().to_json() if self._raw is None else dict(codec.load_line(self._raw))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy. A copy with changes is a new record, without the original's bytes."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            copy.__dict__.pop("_raw", None)
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(value for _, value in sorted(self.to_json().items()) if isinstance(value, str)))


class RunHeader(Logged):
    """The first line of a log, written once."""

    type: Literal["header"] = "header"
    schema_version: Any = 1  # newer files may have any value
    run_id: Text
    session_id: Text | None = None
    started_at: Time
    client: Program | None = None
    server: Program | None = None
    model: Model | None = None
    prompts: Prompts | None = None
    tools: Tools | None = None
    runtime: Runtime | None = None
    meta: JsonObject | None = None


class RunStart(Logged):
    """The start of a run, with its input."""

    type: Literal["run.start"] = "run.start"
    run_id: Text
    session_id: Text | None = None
    ts: Time
    input: RunInput
    ui_context: Any = None
    meta: JsonObject | None = None


class RunContext(Logged):
    """The percentage of the model's context that is left."""

    type: Literal["run.context"] = "run.context"
    run_id: Text
    ts: Time
    context_left_percent: Number
    meta: JsonObject | None = None


class AgentEvent(Logged):
    """An event for display. ``seq`` is its position in the history."""

    type: Literal["agent.event"] = "agent.event"
    run_id: Text
    ts: Time
    seq: Whole
    event: JsonObject
    meta: JsonObject | None = None


class ToolOutput(Logged):
    """The whole output of a tool."""

    type: Literal["tool.output"] = "tool.output"
    run_id: Text
    ts: Time
    tool: Text
    tool_call_id: Text
    result_raw: Text
    is_error: Flag | None = None
    output_ref: OutputRef | None = None
    meta: JsonObject | None = None


class LlmRequest(Logged):
    """An invocation of the model, with the prompt exactly as it was sent."""

    type: Literal["llm.request"] = "llm.request"
    run_id: Text
    ts: Time
    seq: Whole
    model: Model | None = None
    input: LlmInput
    meta: JsonObject | None = None


class LlmResponse(Logged):
    """The answer to the request of the same ``seq``."""

    type: Literal["llm.response"] = "llm.response"
    run_id: Text
    ts: Time
    seq: Whole
    output: LlmOutput
    meta: JsonObject | None = None


class RunStatus(Logged):
    """The status of a run. A status word that a later version wrote is returned unchanged."""

    type: Literal["run.status"] = "run.status"
    run_id: Text
    ts: Time
    status: Text
    message: Text | None = None
    meta: JsonObject | None = None


class RunError(Logged):
    """An error of a run."""

    type: Literal["run.error"] = "run.error"
    run_id: Text
    ts: Time
    error: RunErrorInfo
    meta: JsonObject | None = None


class RunEnd(Logged):
    """The end of the run."""

    type: Literal["run.end"] = "run.end"
    run_id: Text
    ts: Time
    outcome: Text
    final: Text | None = None
    meta: JsonObject | None = None


class CustomRecord(Logged):
    """A record of another program, with a type of the form ``x.<org>.<name>``.

    That program defines its other fields.
    """

    run_id: Text | None = None
    ts: Time = None
    meta: JsonObject | None = None


class UnknownRecord(Logged):
    """A record of an unknown type, or with a field that does not fit its type; then ``problem`` names that field."""

    run_id: Any = None
    ts: Time = None
    meta: Any = None


RunRecord: TypeAlias = (
    RunHeader
    | RunStart
    | RunContext
    | AgentEvent
    | ToolOutput
    | LlmRequest
    | LlmResponse
    | RunStatus
    | RunError
    | RunEnd
    | CustomRecord
    | UnknownRecord
)

#: The records of the original format, by their type.
KINDS: dict[str, type[Logged]] = {
    kind.model_fields["type"].default: kind
    for kind in (
        RunHeader,
        RunStart,
        RunContext,
        AgentEvent,
        ToolOutput,
        LlmRequest,
        LlmResponse,
        RunStatus,
        RunError,
        RunEnd,
    )
}


# Turns lines of a run log into records, and decides which objects in a damaged line are records.

P = TypeVar("P", bound=Open)

_CUSTOM = re.compile(r"x\.[a-z0-9-]+(\.[A-Za-z0-9_-]+)+")
#: The prefix of types that are reserved for later versions of the format.
_RESERVED = ("run.", "agent.", "tool.", "llm.")


def is_custom(kind: str) -> bool:
    """True if a type has the form ``x.<org>.<name>``."""
    return _CUSTOM.fullmatch(kind) is not None


def is_reserved(kind: str) -> bool:
    """True if a type is unknown and reserved for later versions of the format."""
    return kind not in KINDS and (kind.startswith(_RESERVED) or kind.startswith("header"))


def accepts(run_id: str) -> Accepts:
    """True if an object found in a damaged line is a record of this run, and not a part of another object."""

    def is_record(value: JsonObject) -> bool:
        kind = value.get("type")
        return isinstance(kind, str) and (kind in KINDS or is_custom(kind)) and value.get("run_id") == run_id

    return is_record


@guard_arguments
def record_of(value: Mapping[str, Any]) -> RunRecord:
    """Return the record of a JSON object with a text ``type``.

    If a field does not fit the type, returns an `UnknownRecord` that names the field. Raises `InvalidValue` for an
    object without a type.
    """
    return _record_of(dict(value))


def _record_of(given: JsonObject) -> RunRecord:
    kind = given.get("type")
    if not isinstance(kind, str):
        raise InvalidValue("type", "must be a text")
    known = KINDS.get(kind) or (CustomRecord if is_custom(kind) else None)
    problem = None
    if known is not None:
        try:
            return known.model_validate(given)  # type: ignore[return-value]
        except ValidationError as error:
            problem = _problem(error)
    unknown = UnknownRecord.model_validate(given)
    unknown.__dict__["_problem"] = problem
    return unknown


def record_of_piece(piece: Piece, *, recovered: bool) -> RunRecord:
    """Return the record of an object in a file, with its bytes."""
    record = _record_of(piece.value)
    record.__dict__["_raw"] = piece.raw
    if recovered:
        record.__dict__["_recovered"] = True
    return record


def part(where: str, kind: type[P], value: Any) -> P:
    """Return a part of a record. If it is given as a mapping, the part is built from the mapping.

    Raises `InvalidValue` naming the field that does not fit.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidValue(where, f"expected a {kind.__name__}, got {type(value).__name__}")
    return build_record(kind, dict(value), where=where)


def build_record(kind: type[P], fields: dict[str, Any], *, where: str | None = None) -> P:
    """Build a record from these fields. Raises `InvalidValue` naming the field that does not fit."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(step) for step in first["loc"])
        raise InvalidValue(".".join(filter(None, (where, name))) or kind.__name__, first["msg"]) from None


def _problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(step) for step in first['loc']) or 'record'}: {first['msg']}"
