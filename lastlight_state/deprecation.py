"""Warns of names that a later version removes, at the line of the program that uses them."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0]
_thread = threading.local()


def deprecate(instead: str, *, since: str) -> Callable[[F], F]:
    """Return a decorator for a function or method that a later version removes.

    A call raises a `DeprecationWarning` at the caller's line. ``instead`` is what to use, ``since`` the version that
    deprecates the function. The text of the warning is in ``__deprecated__`` of the function, where async faces find
    it.
    """

    def decorate(function: F) -> F:
        text = f"{function.__qualname__} is deprecated since {since}: use {instead}"

        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            warn_deprecated(text)
            return function(*given, **named)

        cast("Any", call).__deprecated__ = text
        return cast(F, call)

    return decorate


def warn_deprecated(text: str) -> None:
    """Raise a `DeprecationWarning` at the nearest line outside this package."""
    if getattr(_thread, "has_warned", False):
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def call_after_warning(method: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call a deprecated method in a worker thread, which does not know the caller's line: the caller was warned."""
    _thread.has_warned = True
    try:
        return method(*given, **named)
    finally:
        _thread.has_warned = False
