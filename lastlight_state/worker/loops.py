"""The iterations of a loop in a run, called turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from lastlight_state.errors import InvalidValue, StaleVersion
from lastlight_state.worker.calls import Entered, result_of
from lastlight_state.worker.memory import Place
from lastlight_state.worker.outages import outlast_outage


class LoopSteps:
    """The turns of a loop. Each turn is stored before it begins, so that no crash skips or repeats one."""

    def __init__(self, held: Any, around: Place, name: str, limit: int | None) -> None:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidValue("limit", "expected a whole number of at least 1, or None")
        self._held = held
        self._key = around.path(around.take_name("loop", name))
        self._of = around.once("")
        self._limit = limit
        self._turn: int | None = None

    async def _next(self) -> Place | None:
        """Store and return the `Place` of the next turn. Return None after the last turn."""
        return await outlast_outage(self._held, self._advance)

    async def _advance(self) -> Place | None:
        held, run_id = self._held, self._held.run.id
        if self._turn is None:
            self._turn = await self._first()
            return cast(Place, held.memory.place(self._key, self._turn, self._of))
        following = Place(self._key, self._turn + 1, self._of)
        if self._limit is not None and following.turn >= self._limit:
            return None
        held.check()
        patch = held.memory.turn_patch(following)
        async with Entered(held.driven.transaction()) as tx:
            with _unless_at(following.turn):
                await result_of(tx.workflows.loops.advance(run_id, self._key, expected=self._turn))
            await result_of(tx.workflows.runs.merge_scratch(run_id, patch))
        held.memory.keep(patch)
        self._turn = following.turn
        return following

    async def _first(self) -> int:
        held, loops = self._held, self._held.workflows.loops
        found = await result_of(loops.find(held.run.id, self._key))
        if found is None or held.memory.knows(self._key, self._of):
            return 0 if found is None else int(found.iteration)
        await result_of(loops.put(held.run.id, self._key, iteration=0))
        return 0


@contextmanager
def _unless_at(iteration: int) -> Iterator[None]:
    """Ignore `StaleVersion` if the loop is already at this iteration: an earlier call stored it unanswered."""
    try:
        yield
    except StaleVersion as error:
        if error.found != iteration:
            raise
