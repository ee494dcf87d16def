"""A block around the work of an execution: the execution starts with the block and ends with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.news.listeners import message_of, storable
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import ClaimLost, LostRace
from lastlight_state.settings import Limits
from lastlight_state.unwinding import block
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Failure, Usage
from lastlight_state.workflows.executions import changes, checks
from lastlight_state.workflows.executions.records import Execution
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.words import NodeState

_LIMITS = limits_of(EXECUTIONS)

Ended = Literal["succeeded", "failed", "skipped", "deferred", "cancelled", "interrupted"]

#: The most characters kept of the name of an exception's type.
_TYPE_CHARS = 80


class RunningExecution:
    """The object that a block around an execution gets. Its attributes are stored when the block ends.

    ``usage`` are running totals, ``output`` is the text that later steps read, ``session_id`` names the agent log,
    ``details`` is JSON of at most 64 KiB.
    ``outcome`` is ``succeeded`` by default, or ``failed`` if there is a ``failure``; ``stop_reason`` says why the work
    stopped, also after a success; ``node_state`` sets the state of the node. Setting a value that cannot be stored
    raises `InvalidValue` at once.
    """

    usage: Usage | None
    output: str | None
    session_id: str | None
    details: Any
    outcome: Ended | None
    failure: Failure | None
    stop_reason: str | None
    node_state: NodeState | None

    def __init__(self, execution: Execution, limits: Limits) -> None:
        self.execution = execution
        self._checks: dict[str, Callable[[Any], object]] = {
            "usage": checks.usage_columns,
            "output": lambda text: checks.results(limits, text, None),
            "session_id": lambda key: valid.session_id("session_id", key),
            "details": lambda value: checks.results(limits, None, value),
            "outcome": lambda word: _agree(valid.word("outcome", word, checks.ENDED), self.failure, self.stop_reason),
            "failure": lambda failure: checks.failure_ending(self.outcome, failure, self.stop_reason),
            "stop_reason": lambda word: _agree(
                self.outcome, self.failure, valid.identifier("stop_reason", word, _LIMITS.stop_reason)
            ),
            "node_state": lambda word: (
                valid.word("node_state", word, words.NODE_STATES),
                changes.at_a_node(execution),
            ),
        }
        for name in self._checks:
            setattr(self, name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        check = None if value is None else self.__dict__.get("_checks", {}).get(name)
        if check is not None:
            check(value)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"RunningExecution({self.execution!r})"

    @property
    def id(self) -> str:
        """Return the execution's id."""
        return self.execution.id


@dataclass(frozen=True)
class Steps:
    """Callbacks that start, update and end an execution. They pass the claim that was given for the block."""

    start: Callable[[], Execution]
    save_output: Callable[..., None]
    update: Callable[..., Execution]
    finish: Callable[..., Execution]


@block
def execution_block(steps: Steps, limits: Limits) -> Iterator[RunningExecution]:
    """Start an execution, yield its object to the block, and end the execution when the block ends."""
    running = RunningExecution(steps.start(), limits)
    try:
        yield running
    except BaseException as error:
        _end_raised(running, error, steps)
        raise
    try:
        unsaid: Ended = "failed" if running.failure else "succeeded"
        _end(running, steps, running.outcome or unsaid, running.failure, running.node_state)
    except LostRace:
        if running.outcome is not None:
            raise  # else the block has ended the execution itself, in its own way
        if running.output is not None:
            steps.save_output(running.id, running.output)


def _end(
    running: RunningExecution, steps: Steps, outcome: Ended, failure: Failure | None, node_state: NodeState | None
) -> None:
    usage = running.usage
    try:
        steps.finish(
            running.id,
            outcome,
            usage=usage,
            failure=failure,
            stop_reason=running.stop_reason,
            session_id=running.session_id,
            output=running.output,
            details=running.details,
            node_state=node_state,
        )
    except (ClaimLost, LostRace):
        if usage is not None:
            steps.update(running.id, usage=usage)  # money spent is a fact, whoever has the run now
        raise


def _end_raised(running: RunningExecution, error: BaseException, steps: Steps) -> None:
    """End the execution with the block's error. A failure to do so becomes a note on that error."""
    outcome: Ended = "failed" if isinstance(error, Exception) else "interrupted"
    try:
        _end(running, steps, outcome, failure_of(error), None)
    except Exception as failure:  # noqa: BLE001 - told in a note of the error that matters
        error.add_note(f"execution {running.id!r} could not be finished: {type(failure).__name__}: {failure}")


def _agree(outcome: str | None, failure: Failure | None, why: str | None) -> None:
    """Raise `InvalidValue` for a success with a failure, or a stop reason given both for the end and in the failure."""
    if failure is not None:
        checks.failure_ending(outcome, failure, why)


def failure_of(error: BaseException) -> Failure:
    """Convert an exception to a `Failure`: the name of its type, and as much of its message as can be stored."""
    name, message = storable(type(error).__name__, _TYPE_CHARS), message_of(error)
    return Failure(f"{name}: {message}" if message else name)
