"""Statements told to the logger ``lastlight_state.statements``: each at DEBUG, and slow ones at WARNING."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("lastlight_state.statements")


def logged(execute: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Return what executes statements: itself, where nobody is told of any.

    A line has the milliseconds until the first row, and the statement; never its values.
    """
    slow_seconds = backend.options.slow_statement
    if slow_seconds is None and not _log.isEnabledFor(logging.DEBUG):
        return execute

    def told(sql: Any, *values: Any, **options: Any) -> Any:
        began = time.perf_counter()
        cursor = execute(sql, *values, **options)
        took = time.perf_counter() - began
        if slow_seconds is not None and took >= slow_seconds:
            _log.warning("a statement took %.0f ms: %s", took * 1_000, _text(sql))
        else:
            _log.debug("%.1f ms: %s", took * 1_000, _text(sql))
        return cursor

    return told


def _text(sql: Any) -> str:
    text = sql.decode() if isinstance(sql, bytes) else str(sql)
    return " ".join(text.split())
