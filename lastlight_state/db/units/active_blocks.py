"""Records which threads and event-loop tasks are inside a transaction block of a store."""

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

    def end_interrupted(self, handle: object) -> None:
        """Remove the block of a task that will not resume."""
        if self._blocks.get(self._user) is self:
            self._blocks.pop(self._user, None)


class Blocks(dict[object, ActiveBlock]):
    """The open transaction blocks by thread or task. An interrupted block may remain listed; it is then `is_gone`."""

    def new_block(self, *, by_task: bool) -> ActiveBlock:
        """Return a block for this thread to enter. With ``by_task``, return one only for this asyncio task."""
        return ActiveBlock(self, _task() if by_task else threading.get_ident())

    def has_thread(self) -> bool:
        """True if this thread is inside a block."""
        return self._has(threading.get_ident())

    def has_task(self) -> bool:
        """True if this task is inside a block that was entered by task."""
        return bool(self) and self._has(_task())

    def _has(self, user: object) -> bool:
        block = self.get(user)
        return block is not None and not block.is_gone


def _task() -> object:
    """Return the asyncio task that runs in this thread. Return None if there is none."""
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio.current_task() if asyncio is not None else None
    except RuntimeError:
        return None
