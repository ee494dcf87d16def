"""Lines of a run log to records, and which objects inside a damaged line are records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from lastlight_state.db.gate import guarded
from lastlight_state.errors import InvalidValue
from lastlight_state.jsonl.recovery import Accepts, Piece
from lastlight_state.run_log.parts import JsonObject, Open
from lastlight_state.run_log.records import KINDS, CustomRecord, RunRecord, UnknownRecord

P = TypeVar("P", bound=Open)

_CUSTOM = re.compile(r"x\.[a-z0-9-]+(\.[A-Za-z0-9_-]+)+")
#: Types that begin so are kept for later versions of the format.
_RESERVED = ("run.", "agent.", "tool.", "llm.")


def is_custom(kind: str) -> bool:
    """Whether a type has the form ``x.<org>.<name>``."""
    return _CUSTOM.fullmatch(kind) is not None


def is_reserved(kind: str) -> bool:
    """Whether a type is not known and is kept for later versions of the format."""
    return kind not in KINDS and (kind.startswith(_RESERVED) or kind.startswith("header"))


def accepts(run_id: str) -> Accepts:
    """Whether an object found in a damaged line is a record of this run, and not an object inside another record."""

    def is_record(value: JsonObject) -> bool:
        kind = value.get("type")
        return isinstance(kind, str) and (kind in KINDS or is_custom(kind)) and value.get("run_id") == run_id

    return is_record


@guarded
def record_of(value: Mapping[str, Any]) -> RunRecord:
    """The record of a JSON object with a text ``type``.

    What does not fit its type is an `UnknownRecord` that says why. Raises `InvalidValue` for an object without a type.
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
    """The record of an object in a file, with its bytes."""
    record = _record_of(piece.value)
    record.__dict__["_raw"] = piece.raw
    if recovered:
        record.__dict__["_recovered"] = True
    return record


def part(where: str, kind: type[P], value: Any) -> P:
    """A part of a record: as it is, or made of a mapping. Raises `InvalidValue` naming the field that does not fit."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidValue(where, f"expected a {kind.__name__}, got {type(value).__name__}")
    return made(kind, dict(value), where=where)


def made(kind: type[P], fields: dict[str, Any], *, where: str | None = None) -> P:
    """A record of these fields. Raises `InvalidValue` naming the field that does not fit."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(step) for step in first["loc"])
        raise InvalidValue(".".join(filter(None, (where, name))) or kind.__name__, first["msg"]) from None


def _problem(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(step) for step in first['loc']) or 'record'}: {first['msg']}"
