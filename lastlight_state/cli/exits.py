"""The exit codes, and the mapping of errors to them.

==== ========================================================================================== 0 done 1 ran, with a
negative answer: not found, refused, differences 2 wrong usage 3 the schema is behind 4 the schema is ahead, and this
library may work on it (``check`` only) 5 the schema is ahead and incompatible, or a copy into the database is not
finished 6 unreachable: no server, no file, no permission, not a database; or busy beyond every retry 7 stopped at its
time limit, and can be resumed 130 ended by SIGINT 143 ended by SIGTERM ====
==========================================================================================
"""

from __future__ import annotations

import signal
import traceback
from dataclasses import dataclass, field
from typing import Any

from click import UsageError

from lastlight_state.errors import (
    BackendBusy,
    BackendUnavailable,
    InvalidValue,
    NewerSchema,
    NotMigrated,
    StateError,
)

DONE, NO, USAGE, BEHIND, AHEAD, INCOMPATIBLE, UNREACHABLE, STOPPED = range(8)
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


@dataclass(frozen=True)
class Failure:
    """The reason why a command failed: the ``error`` of its JSON object, and its exit code."""

    exit_code: int
    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class Terminated(BaseException):
    """Raised when SIGTERM is received."""


def failure_of(error: BaseException, *, location: str | None = None) -> Failure:
    """Convert an exception to a failure. ``location`` is the database, which is named if it is unreachable."""
    if isinstance(error, UsageError):
        return Failure(USAGE, "usage", _usage_text(error))
    if isinstance(error, StateError):
        return _of_library(error, location)
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, "interrupted", "interrupted")
    if isinstance(error, Terminated):
        return Failure(TERMINATED, "terminated", "terminated")
    if isinstance(error, OSError):
        return Failure(UNREACHABLE, "os_error", f"{error.filename or 'input or output'}: {error.strerror or error}")
    text = "".join(traceback.format_exception(error))
    return Failure(NO, "internal", f"a defect of this program: {type(error).__name__}\n{text.rstrip()}")


def _of_library(error: StateError, location: str | None) -> Failure:
    text, details = str(error), error.details
    if isinstance(error, BackendUnavailable | BackendBusy) and location is not None:
        details = {**details, "location": location}
        text = text if location in text else f"{location}: {text}"
    return Failure(_exit_code(error), error.code, text, details)


def _exit_code(error: StateError) -> int:
    if isinstance(error, InvalidValue):
        return USAGE
    if isinstance(error, NotMigrated):
        return BEHIND
    if isinstance(error, NewerSchema) or error.code == "unfinished_copy":
        return INCOMPATIBLE
    if isinstance(error, BackendUnavailable | BackendBusy):
        return UNREACHABLE
    if "extra" in error.details:  # the driver of this database is not installed
        return UNREACHABLE
    return NO


def _usage_text(error: UsageError) -> str:
    """Return the parser's error text, and the command that shows help."""
    text = error.format_message()
    return f"{text}\nTry '{error.ctx.command_path} --help'." if error.ctx is not None else text
