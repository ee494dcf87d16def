"""The definition of a workflow for a worker: its function, and the settings for driving its runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from lastlight_state.schedules import CronSpec
from lastlight_state.worker.calls import RunFailed
from lastlight_state.worker.memory import problems_of
from lastlight_state.worker.retry import Retry

if TYPE_CHECKING:
    from lastlight_state.outputs import RunInput

F = TypeVar("F", bound=Callable[..., Any])

#: No cap: more runs than any database holds at a time.
NO_CAP = 2**31 - 1


@dataclass(frozen=True)
class Definition(Generic[F]):
    """A registered workflow: its function, and the settings for driving its runs."""

    function: F
    cap: int | None
    retry: Retry
    input: Any
    cron: CronSpec | None

    def read(self, stored: RunInput | None) -> Any:
        """Convert a run's input to the declared type.

        Raises `RunFailed` if it does not fit, because no retry can help.
        """
        if stored is None:
            raise RunFailed("the run has no input: store one with outputs.inputs.ensure when it is created")
        if self.input is dict:
            return stored.payload
        try:
            return TypeAdapter(self.input).validate_python(stored.payload)
        except ValidationError as error:
            raise RunFailed(f"the run's input must fit {self.input!r}: {problems_of(error)}") from None
