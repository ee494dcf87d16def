"""Tracks which threads and event-loop tasks are inside a block of a store's transaction."""

from __future__ import annotations

import sys
import threading

from lastlight_state.unwinding import Exit, HeldResource


class ActiveBlock(HeldResource):
    """A registered transaction block of one thread or task."""

    def __init__(self, blocks: Blocks, user: object) -> None:
        self._blocks = blocks
        self._user = user

    def __enter__(self) -> None:
        self._blocks[self._user] = self

    def _leave(self, *raised: object) -> None:
        self._blocks.pop(self._user, None)
        self.handle = None

    __exit__ = Exit(_leave)

    def abandoned(self, handle: object) -> None:
        """Forget the block of a task that will not resume."""
        if self._blocks.get(self._user) is self:
            self._blocks.pop(self._user, None)


class Blocks(dict[object, ActiveBlock]):
    """The transaction blocks by their thread or task. An interrupted block may still be listed; it is then `gone`."""

    def entered(self, *, by_task: bool) -> ActiveBlock:
        """Return a block to enter, for this thread; with ``by_task``, for this asyncio task alone."""
        return ActiveBlock(self, _task() if by_task else threading.get_ident())

    def has_thread(self) -> bool:
        """True if this thread is inside a block."""
        return self._has(threading.get_ident())

    def has_task(self) -> bool:
        """True if this task is inside a block of its own."""
        return bool(self) and self._has(_task())

    def _has(self, user: object) -> bool:
        block = self.get(user)
        return block is not None and not block.gone


def _task() -> object:
    """Return the asyncio task that runs in this thread, or None."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio.current_task() if asyncio is not None else None
    except RuntimeError:
        return None
