"""The frames of a run, as rows of ours: each stays whole or a change, as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec as json_codec
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.journal.frames import codec
from lastlight_state.journal.tables import FRAMES
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms, mapped, moment

_MOST = limits_of(FRAMES)

_ENCODINGS = {name: name for name in ("full", "keyframe", "delta")}
_DELTA = "delta"


def frames(terms: Terms, rows: Sequence[Row]) -> Iterator[Row]:
    """The frames in their order. Each is made anew, so that one that cannot be read is refused.

    A lenient import leaves such a one out, with the changes that stand on it, and counts them.
    """
    before: tuple[int, str] | None = None
    for row in rows:
        found = Found(terms, "_smithers_frames", row, "frame_no")
        try:
            made, text = _frame(found, before)
        except InvalidValue:
            if not terms.lenient:
                raise
            terms.noticed["frame_unreadable"] += 1
            before = None
        else:
            before = made["frame_no"], text
            terms.noticed["xml_hash_left"] += row.get("xml_hash") not in (None, made["content_hash"])
            yield made


def _frame(found: Found, before: tuple[int, str] | None) -> tuple[Row, str]:
    number = found.must("frame_no", valid.number)
    body = found.must("xml_json", cells.text(_MOST.body))
    encoding = mapped(_ENCODINGS, "encoding", found.row.get("encoding") or "full")
    text = _text(number, body, encoding, before)
    made = {
        "run_id": found.must("run_id", cells.name(_MOST.run_id)),
        "frame_no": number,
        "created_at": _created(found),
        "encoding": encoding,
        "content_hash": codec.digest(text),
        "full_bytes": len(text.encode()),
        "note": found.may("note", cells.text(_MOST.note)),
        "mounted_task_ids": _ids(number, found.json("mounted_task_ids_json", _MOST.mounted_task_ids, list)),
        "task_index": _index(found.json("task_index_json", _MOST.task_index, (list, dict))),
        "body": body if encoding == _DELTA else text,
    }
    return made, text


def _created(found: Found) -> datetime:
    created: datetime = found.must("created_at_ms", moment)
    return created


def _text(number: int, body: str, encoding: str, before: tuple[int, str] | None) -> str:
    """The canonical text of a frame. Raises `InvalidValue` for a change of a frame that is not there."""
    where = f"_smithers_frames {number}.xml_json"
    is_change = encoding == _DELTA
    if is_change and (before is None or before[0] != number - 1):
        raise InvalidValue(where, "changes a frame that is not there")
    try:
        if before is None or not is_change:
            return codec.canonical(json_codec.decode(body))
        return codec.canonical(codec.replayed(json_codec.decode(before[1]), [body]))
    except InvalidValue as error:
        raise InvalidValue(where, f"{error.where}: {error.problem}") from None
    except ValueError as error:
        raise InvalidValue(where, f"is not JSON: {error}") from None


def _ids(number: int, value: Any) -> Any:
    if value is not None and not all(isinstance(one, str) for one in value):
        raise InvalidValue(f"_smithers_frames {number}.mounted_task_ids_json", "must be a list of ids")
    return value


def _index(value: Any) -> Any:
    """Return where tasks stand in the frame. A list of them has its place under ``tasks``."""
    return {"tasks": value} if isinstance(value, list) else value
