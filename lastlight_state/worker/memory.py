"""The stored results of a run's steps, so that a finished step is not done again.

Outside of loops a phase's result is stored in the run's scratch under the phase's name. Inside a loop it is stored in
``scratch[loop]``, which holds only the results of the current turn. A large result is stored as the output text of its
execution. Then scratch holds a pointer to that execution: ``{"lastOutputExecutionId": …}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.settings import Limits
from lastlight_state.workflows import WorkflowRun

#: Largest result that is kept in scratch, in bytes of JSON.
SMALL = 2 * 1024
#: The scratch key whose value is the id of the execution that holds an output.
POINTER = "lastOutputExecutionId"
#: The scratch keys of the worker itself: failed tries, and ends of waits outside of loops.
TRIES, WAITS = "_tries", "_waits"

#: The first characters of an output text that wraps a JSON result. Any other text is the result itself.
_JSON = '{"result":'


@lru_cache(maxsize=256)
def _adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)


@dataclass(frozen=True)
class Result:
    """A phase's result in its stored form: a value in scratch, or the output text of its execution."""

    value: Any
    output: str | None
    #: True if the result is the execution's text. Then scratch holds only a pointer.
    in_output: bool


def stored_result(
    name: str, result: Any, output: str | None, returns: Any, limits: Limits, *, has_room: bool
) -> Result:
    """Return the stored form of a phase's result, and its value as it will be read back.

    ``output`` is the text that the phase set itself. ``has_room`` is True if scratch may take a small result. Raises
    `InvalidValue` for a result that cannot be stored, and `PayloadTooLarge`.
    """
    where = f"the result of phase {name!r}"
    if returns is not None:
        result = _dump_result(where, result, returns)
    elif result is None and output is not None:
        return Result(_read(output), output, in_output=True)
    text = codec.encode(where, result, max_bytes=limits.output_text - len(_JSON) - 1)
    value = codec.decode(text)
    fits = len(text.encode()) <= SMALL and pointed_execution(value) is None
    if fits and (has_room or output is not None):
        return Result(value, output, in_output=False)
    if output is not None:
        raise InvalidValue(where, f"must have at most {SMALL} bytes of JSON in a phase that sets an output itself")
    if isinstance(value, str) and not value.startswith(_JSON):
        return Result(value, value, in_output=True)
    return Result(value, f"{_JSON}{text}}}", in_output=True)


def problems_of(error: ValidationError) -> str:
    """Return the first five problems found by a validation as text, without the rejected values."""
    found = error.errors(include_url=False, include_input=False)[:5]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the value'}: {one['msg']}" for one in found)


def _dump_result(where: str, result: Any, returns: Any) -> Any:
    adapter = _adapter(returns)
    try:
        return adapter.dump_python(adapter.validate_python(result), mode="json", by_alias=True, warnings="error")
    except ValidationError as error:
        raise InvalidValue(where, f"expected {returns!r}: {problems_of(error)}") from None
    except ValueError as error:  # raised by the type's own serializer
        raise InvalidValue(where, f"cannot be written as JSON: {error}") from None


def check_type(name: str, returns: Any) -> None:
    """Raise `MisuseError` if pydantic cannot validate the declared result type of a phase."""
    try:
        _adapter(returns)
    except PydanticUserError as error:
        raise MisuseError(f"phase {name!r} cannot return {returns!r}: {error}") from None


def parse_result(name: str, value: Any, returns: Any) -> Any:
    """Convert a stored result to the declared result type of the phase. Raises `InvalidValue` if it does not fit."""
    if returns is None:
        return value
    try:
        return _adapter(returns).validate_json(codec.encode_sound(value))
    except ValidationError as error:
        where = f"the stored result of phase {name!r}"
        raise InvalidValue(where, f"expected {returns!r}: {problems_of(error)}") from None


def _read(output: str) -> Any:
    """Decode the result in an execution's output text."""
    if output.startswith(_JSON):
        with suppress(ValueError, KeyError, TypeError):
            return codec.decode(output)["result"]
    return output


@dataclass
class Place:
    """A namespace for step names in a run: the whole run, or one turn of a loop.

    For a loop inside a loop, ``of`` is the prefix of the outer turn. ``results`` and ``waits`` are the stored values of
    the steps in this place. ``used`` holds the names that this call of the function has used.
    """

    loop: str = ""
    turn: int = 0
    of: str = ""
    results: dict[str, Any] = field(default_factory=dict)
    waits: dict[str, Any] = field(default_factory=dict)
    used: set[tuple[str, str]] = field(default_factory=set)

    def path(self, name: str) -> str:
        """Return a phase's name as the run's history shows it: with the loop's name as a prefix."""
        return f"{self.loop}.{name}" if self.loop else name

    def once(self, name: str) -> str:
        """Return a step's name made unique to this turn of the loop."""
        return f"{self.of}{self.loop}/{self.turn}/{name}" if self.loop else name

    @property
    def node(self) -> str:
        """Return the node id under which questions of this turn are stored."""
        return f"{self.of}{self.loop}"

    def take_name(self, kind: str, name: str) -> str:
        """Check and return a step's name. Raises `MisuseError` if this call of the function has used it already."""
        if ":" in valid.identifier("name", name):
            raise InvalidValue("name", "expected a name without a colon")
        if (kind, name) in self.used:
            where = f"in this turn of the loop {self.loop!r}" if self.loop else "outside of a loop"
            raise MisuseError(
                f"the {kind} {name!r} is used a second time {where}, and a name has one result: "
                "use another name, or iterate over job.loop and call the methods of its turns"
            )
        if not self.loop and kind in ("phase", "loop"):
            other = "loop" if kind == "phase" else "phase"
            if (other, name) in self.used or name in (TRIES, WAITS):
                raise MisuseError(f"the {kind} {name!r} has the key of scratch of another step: use another name")
        self.used.add((kind, name))
        return name


class Memory:
    """The scratch of a run that a worker holds, as it was loaded and then changed by this worker."""

    def __init__(self, run: WorkflowRun, limits: Limits) -> None:
        self._scratch: dict[str, Any] = dict(run.scratch or {})
        self._limits = limits
        self.restarts = run.restart_count
        waits = self._scratch.get(WAITS)
        done = {entry.phase for entry in run.phase_history if entry.success}
        #: The succeeded phases without a result in scratch. Each result is the output of its execution.
        self.outside = {name for name in done if name not in self._scratch}
        #: The place of the steps outside of loops.
        self.whole = Place(
            results={name: self._scratch[name] for name in done if name in self._scratch},
            waits=dict(waits) if isinstance(waits, dict) else {},
        )

    def place(self, loop: str, turn: int, of: str) -> Place:
        """Return the `Place` of a loop's turn, with the results and waits stored for it in scratch."""
        kept = self._turn(loop)
        if not self.knows(loop, of) or kept.get("turn") != turn:
            return Place(loop, turn, of)
        return Place(loop, turn, of, dict(kept.get("results") or {}), dict(kept.get("waits") or {}))

    def knows(self, loop: str, of: str) -> bool:
        """True if an inner loop's values in scratch belong to the outer loop's turn ``of``, not to an earlier one."""
        return bool(self._turn(loop).get("of", "") == of)

    def has_room(self, place: Place) -> bool:
        """True if scratch has room for another result.

        In a turn of a loop it always has; otherwise until it is half full.
        """
        return bool(place.loop) or len(codec.encode_sound(self._scratch)) + SMALL <= self._limits.scratch // 2

    def with_result(self, place: Place, name: str, value: Any) -> dict[str, Any]:
        """Return the scratch patch that stores a result.

        It is empty if there is no room for the pointer: see `outside`.
        """
        if place.loop:
            return self.turn_patch(replace(place, results={**place.results, name: value}))
        return {name: value} if pointed_execution(value) is None or self.has_room(place) else {}

    def with_wait(self, place: Place, name: str, value: Any) -> dict[str, Any]:
        """Return the scratch patch that stores the end of a wait."""
        waits = {**place.waits, name: value}
        return self.turn_patch(replace(place, waits=waits)) if place.loop else {WAITS: waits}

    def turn_patch(self, place: Place) -> dict[str, Any]:
        """Return the scratch patch that stores a loop's turn with its results and waits."""
        kept = self._turn(place.loop)
        pointer = {POINTER: kept[POINTER]} if POINTER in kept else {}
        told = {"of": place.of} if place.of else {}
        waits = {"waits": place.waits} if place.waits else {}
        return {place.loop: {**pointer, **told, "turn": place.turn, "results": place.results, **waits}}

    def keep(self, patch: Mapping[str, Any]) -> None:
        """Apply a patch that was stored in the database to this copy of scratch."""
        self._scratch.update(patch)

    def point(self, loop: str, execution_id: str) -> None:
        """Record in this copy of scratch which execution holds the last output of a loop."""
        self._scratch[loop] = {**self._turn(loop), POINTER: execution_id}

    def _turn(self, loop: str) -> Mapping[str, Any]:
        kept = self._scratch.get(loop)
        return kept if isinstance(kept, Mapping) else {}

    @property
    def tries(self) -> int:
        """Return the number of failed tries since the run was last restarted."""
        kept = self._scratch.get(TRIES)
        found = kept.get("count") if isinstance(kept, dict) and kept.get("restarts") == self.restarts else None
        return found if isinstance(found, int) else 0


def pointed_execution(value: Any) -> str | None:
    """Return the id of the execution to which a scratch value points. Return None if the value is no pointer."""
    return value[POINTER] if isinstance(value, dict) and value.keys() == {POINTER} else None


def read_output(text: str | None) -> Any:
    """Decode the result in an execution's text. Raises `InvalidValue` if the text was erased."""
    if text is None:
        raise InvalidValue("phase", "its result was emptied: the text of its execution is gone")
    return _read(text)
