"""Names and paths of run logs and session states. Touches no file.

::

    <root>/sessions/YYYY/MM/DD/<run id>.jsonl       one run; the day of its start in UTC; packed, <run id>.jsonl.gz
    <root>/sessions/state/<session id>.json         the snapshot from which a session resumes
    <root>/sessions/.locks/<run id>                 held while the run's writer lives
    <root>/sessions/state/.locks/<session id>       held while a snapshot is put
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from lastlight_state.clock import aware_utc, iso_time, to_millis
from lastlight_state.db.valid import words
from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.files.run_log.storage import SUFFIX as PACKED_SUFFIX
from lastlight_state.reprs import repr_of

# The words used in run logs, and the keys that this library adds to ``meta``.

RunStatusWord: TypeAlias = Literal["running", "awaiting_ui", "completed", "error", "cancelled"]
RunOutcome: TypeAlias = Literal["completed", "cancelled", "error"]
#: The states of runs. ``running`` and ``crashed`` runs have no ``run.end``; without file locks, they are ``unknown``.
RunState: TypeAlias = Literal["running", "crashed", "unknown", "ended"]
OnError: TypeAlias = Literal["raise", "report"]

STATUSES = words(RunStatusWord)
OUTCOMES = words(RunOutcome)
INPUTS = frozenset({"text", "parts"})
#: The statuses of a finished run.
TERMINAL = OUTCOMES

#: The version of files and snapshots that is written, and the only one that is supported.
VERSION = 1

MARK = "x.lastlight."
LATE = MARK + "late"
ENVIRONMENT = MARK + "environment"
WORKSPACE = MARK + "workspace_root"
#: The version in snapshots of the original program.
FOREIGN_WORKSPACE = "codelia_workspace_root"
NOTICE = MARK + "resume_notice"
RECONSTRUCTED = MARK + "reconstructed"

RUN = "run"
STATE_TYPE = "session_state"


SESSIONS, STATE, LOCKS = "sessions", "state", ".locks"
LOG_SUFFIX, STATE_SUFFIX = ".jsonl", ".json"
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_YEAR, _TWO_DIGITS = re.compile(r"[0-9]{4}"), re.compile(r"[0-9]{2}")
_NAME_BYTES = 255
#: The names of day directories: year, month, day.
_DAY = 3
#: The longest name of a file made from an id: a damaged snapshot is kept as ``<id>.json.bad-<time>``.
_SUFFIX_BYTES = 40
#: The endings of files that repairs leave beside the logs.
_NO_RUNS = (".repaired", ".tmp")


def new_run_id() -> str:
    """Return a new id for a run or a session: a UUIDv4."""
    return str(uuid4())


def is_uuid4(text: str) -> bool:
    """True if this is a UUIDv4 in canonical lower case."""
    return _UUID4.fullmatch(text) is not None


def checked_id(where: str, text: Any) -> str:
    """Check an id for a new file, and return it. The id must be a UUIDv4 in lower case.

    Raises `UnsafePath` for an id that would leave its directory, else `InvalidValue`.
    """
    readable_id(where, text)
    if not is_uuid4(text):
        raise InvalidValue(where, f"must be a UUIDv4 in lower case, got {repr_of(text, 80)}")
    return str(text)


def readable_id(where: str, text: Any) -> str:
    """Check that an id can be a file's name, and return it. The library may be unable to create such an id.

    Raises as `checked_id`.
    """
    if not isinstance(text, str):
        raise InvalidValue(where, f"expected text, got {type(text).__name__}")
    if not text:
        raise InvalidValue(where, "must not be empty")
    if text in {".", ".."} or "/" in text or "\\" in text or "\0" in text:
        raise UnsafePath(where, "must be a name without separators, NUL or dot segments")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidValue(where, "must not contain a lone surrogate") from None
    if text.startswith(".") or size > _NAME_BYTES - _SUFFIX_BYTES:
        raise InvalidValue(where, f"must not begin with a dot, or has more than {_NAME_BYTES - _SUFFIX_BYTES} bytes")
    return text


def is_readable(text: str) -> bool:
    """True if `readable_id` accepts the id."""
    try:
        readable_id("id", text)
    except InvalidValue:
        return False
    return True


def run_of(file_name: str) -> str | None:
    """Return the run id in a log's file name; or None for other files."""
    plain = file_name.removesuffix(PACKED_SUFFIX)
    run_id = plain.removesuffix(LOG_SUFFIX)
    if run_id == plain or run_id.endswith(_NO_RUNS) or not is_readable(run_id):
        return None
    return run_id


def session_of(file_name: str) -> str | None:
    """Return the session id in a snapshot's file name; or None for other files."""
    session_id = file_name.removesuffix(STATE_SUFFIX)
    return session_id if session_id != file_name and is_readable(session_id) else None


def utc_start(moment: Any) -> datetime:
    """Return the start of a run in UTC. Raises `InvalidValue` for a time without a zone, and for other types."""
    if moment is None:
        raise InvalidValue("started_at", "must be a time with its zone")
    return aware_utc("started_at", moment)


def day_parts(day: date) -> tuple[str, str, str]:
    """Return the names of the three directories of a day: year, month and day, zero padded."""
    return f"{day.year:04}", f"{day.month:02}", f"{day.day:02}"


def is_part(name: str, level: int) -> bool:
    """True if a directory of this name may be a year (level 0), month or day."""
    return (_YEAR if level == 0 else _TWO_DIGITS).fullmatch(name) is not None


def day_of(parts: tuple[str, str, str]) -> date | None:
    """Return the day that the names of three directories form, or None if the calendar has no such day."""
    try:
        return date(*map(int, parts))
    except ValueError:
        return None


def day_parts_of(path: Path) -> tuple[str, str, str] | None:
    """Return the year, month and day directories of a log, or None for a file that is elsewhere."""
    parts = path.absolute().parent.parts[-_DAY:]
    if len(parts) != _DAY or not all(is_part(name, level) for level, name in enumerate(parts)):
        return None
    return parts[0], parts[1], parts[2]


def moment_of(text: Any) -> datetime | None:
    """Parse a time of any precision and offset from a file, and return it in UTC.

    None if it is not a time or has no zone.
    """
    if not isinstance(text, str):
        return None
    try:
        moment = iso_time(text)
        return None if moment.tzinfo is None else to_millis(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None
