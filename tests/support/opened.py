"""Who opened a connection to Postgres that nobody closes."""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

import psycopg

#: How many callers are told, but for those in libraries.
CALLERS = 12


def name_openers() -> None:
    """Let the warning of a connection that is deleted while it is open say which test opened it, and where.

    It comes when garbage is collected, which is in another test as a rule: psycopg's own says nothing of the first.
    """
    made: Any = psycopg.Connection.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self.opened_by = f"{os.environ.get('PYTEST_CURRENT_TEST')}\n{_callers()}"

    def deleted(self: Any) -> None:
        if hasattr(self, "opened_by") and not self.closed:
            warnings.warn(f"{self!r} is still open: {self.opened_by}", ResourceWarning, stacklevel=1, source=self)

    psycopg.Connection.__init__ = init  # type: ignore[method-assign]
    psycopg.Connection.__del__ = deleted  # type: ignore[method-assign, assignment]


def _callers() -> str:
    lines: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(lines) < CALLERS:
        if "site-packages" not in frame.f_code.co_filename:
            lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return "\n".join(lines)
