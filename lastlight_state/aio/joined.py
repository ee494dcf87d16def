"""``transaction(connection=…)`` of an async store: calls inside an asynchronous transaction of the caller's.

What is awaited there belongs to the event loop. So these calls are not made on a thread, but in a greenlet of the loop,
as SQLAlchemy makes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from lastlight_state.aio.forward import Runner
from lastlight_state.errors import MisuseError

R = TypeVar("R")
T = TypeVar("T")


class JoinedBlock(AbstractAsyncContextManager[T]):
    """``async with`` over a sync block that joined; ``face`` makes of what the block gives what the coroutine gets."""

    def __init__(
        self, block: AbstractContextManager[Any], face: Callable[[Any, Runner], T], admit: Callable[[], None]
    ) -> None:
        self._block = block
        self._face = face
        self._admit = admit
        self._runner = _LoopRunner()

    async def __aenter__(self) -> T:
        self._admit()
        return self._face(await self._runner.write(self._block.__enter__), self._runner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._runner.finish(partial(self._block.__exit__, kind, error, trace))


class _LoopRunner:
    """Makes calls in greenlets of the event loop, one after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    def read(self, call: Callable[[], R]) -> Awaitable[R]:
        return self._made(call)

    write = finish = read

    def refuse_closed(self) -> None:
        """Do nothing: its calls are those of the transaction."""

    async def _made(self, call: Callable[[], R]) -> R:
        async with self._turn:
            made: R = await greenlet_spawn(call)
            return made


def sync_of(given: Any) -> Connection | Session:
    """Return the sync connection or session below an asynchronous one. Raises `MisuseError` for anything else."""
    kinds = import_module("sqlalchemy.ext.asyncio")
    if isinstance(given, kinds.AsyncSession | kinds.AsyncConnection):
        found: Connection | Session | None = getattr(given, "sync_session", None) or given.sync_connection
        if found is not None:
            return found
        instead = "it is not connected: use `async with engine.begin() as connection`"
    elif isinstance(given, kinds.AsyncEngine):
        instead = "use `async with engine.begin() as connection`"
    elif isinstance(given, Connection | Session):
        instead = "use StateStore.transaction, in a thread of its own"
    elif hasattr(given, "registry"):  # an async_scoped_session
        instead = "give session()"
    else:
        instead = "give one that is inside a transaction"
    raise MisuseError(
        f"connection= takes an AsyncConnection or AsyncSession of SQLAlchemy, not {type(given).__name__}: {instead}"
    )
