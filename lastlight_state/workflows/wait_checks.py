"""What `waits` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.clock import aware_utc
from lastlight_state.db import checks
from lastlight_state.errors import InvalidValue, StaleVersion, StateError
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Wait
from lastlight_state.workflows.run_pauses import Why

MOST_GATES = 500


@dataclass(frozen=True)
class Pause:
    """What a run is to wait for, and the word for the first of it."""

    gates: Sequence[str]
    wait: Wait

    @property
    def why(self) -> Why:
        if self.gates:
            return "gate"
        if self.wait.signal is not None:
            return "signal"
        return "operator" if self.wait.until is None else "timer"


def pause(gates: Sequence[str], until: datetime | None, signal: str | None, correlation_id: str | None) -> Pause:
    """A pause as its caller wants it."""
    ids = dict.fromkeys(checks.identifier("gates", gate, words.ID) for gate in checks.several("gates", gates))
    if len(ids) > MOST_GATES:
        raise InvalidValue("gates", f"{len(ids)} gates, more than the limit of {MOST_GATES}", limit=MOST_GATES)
    if correlation_id is not None and signal is None:
        raise InvalidValue("correlation_id", "says nothing without a signal")
    wait = Wait(
        until=None if until is None else aware_utc("until", until),
        signal=checks.optional("signal", signal, words.SIGNAL),
        correlation_id=checks.optional("correlation_id", correlation_id, words.SIGNAL),
    )
    return Pause(gates=tuple(ids), wait=wait)


def not_open(question: Mapping[str, Any] | None, question_id: str) -> StateError:
    """The error for a question that the run cannot wait for: closed a moment ago, or none of its own."""
    if question is None:
        return checks.not_found("approval", question_id)
    return StaleVersion(question["kind"], question_id, expected="pending", found=question["status"])
