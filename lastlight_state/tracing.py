"""Where calls of repositories can be watched, by whoever asks for that in `lastlight_state.telemetry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Observer(Protocol):
    """Makes the call that it is told of, and returns what the call returned."""

    def __call__(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any: ...


#: Who watches each call of a repository. None: nobody.
observer: Observer | None = None
#: Returns the trace and the span that the caller is in, as a run stores them. None: nobody knows.
current_span: Callable[[], tuple[str, str] | None] | None = None
