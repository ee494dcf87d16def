"""The result of a command: data for programs, lines for people, and the failure if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lastlight_state.cli.exits import Failure
from lastlight_state.cli.screen import Screen

Lines = Iterable[Any]


def _no_lines(_: Screen) -> Lines:
    return ()


@dataclass(frozen=True)
class Answer:
    """``data`` goes into the JSON object; ``lines`` draws the same for people, and runs only for them.

    With a ``failure`` the data is still shown, and the reason goes to stderr.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    lines: Callable[[Screen], Lines] = _no_lines
    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        """0, or the failure's."""
        return self.failure.exit_code if self.failure else 0
