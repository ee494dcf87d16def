"""Blocks that end, whatever an exception cuts short.

A signal's handler, `RecursionError` and `MemoryError` raise between any two instructions, also in the first of an
``__exit__`` and in the middle of a ``finally``. So what a block holds is not tied to instructions but to the ``with``
statement itself: the statement keeps nothing of ours but one callable, to which nobody else refers. Its death ends
the block if the block has not ended by then, even while the exception and its frames are still looked at.

The callable is a `functools.partial`, which a statement cannot call without keeping it. A bound method can be taken
apart: CPython does so from 3.14 on, and drops it before the body begins. Where an interpreter drops the callable late,
the block ends late: whoever waits for what it holds looks again and again whether it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import ref

from lastlight_state.errors import MisuseError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="HeldResource")


class HeldResource:
    """What a ``with`` statement holds. Others may ask whether the statement is over."""

    #: Refers to what the statement keeps. None before the block begins, and once it has ended as it should.
    handle: ref[Any] | None = None

    @property
    def gone(self) -> bool:
        """True if the statement is over and the block has not ended."""
        return self.handle is not None and self.handle() is None

    def abandoned(self, handle: object) -> None:
        """End a block that has not ended when its statement is over, as far as that is possible here."""


class Exit:
    """The ``__exit__`` of a class: a partial over the block's state, made anew for each ``with`` statement.

    The frames that it runs in refer to the state and not to the partial, so that they do not keep the partial alive.
    """

    def __init__(self, leave: Callable[[Any, Any, Any, Any], Any], state: str | None = None) -> None:
        self._leave = leave
        self._state = state

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, block: Any, owner: type) -> Any:
        if block is None:  # contextlib.ExitStack asks the class
            return self._leave_by_hand
        held = block if self._state is None else getattr(block, self._state)
        leave = partial(self._leave, held)
        if held.handle is None or held.handle() is not block:  # else entered by a call: the caller has the block itself
            held.handle = ref(leave, held.abandoned)
        return leave

    def _leave_by_hand(self, block: Any, *raised: Any) -> Any:
        return getattr(block, self._name)(*raised)


class _Running(HeldResource):
    """A block whose body is between the two halves of a generator."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def abandoned(self, handle: object) -> None:
        with suppress(BaseException):  # the first exception is on its way
            self.manager.gen.close()


def _leave(running: _Running, kind: Any, error: Any, trace: Any) -> Any:
    if kind is None and running.gone:
        raise MisuseError("the garbage collector ended this block before its body came to its end")
    swallowed = running.manager.__exit__(kind, error, trace)
    running.handle = None
    return swallowed


class _Block(AbstractContextManager[T]):
    """What `block` makes."""

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._running = _Running(manager)

    def __enter__(self) -> T:
        running = self._running
        if running.handle is None:  # entered by a call: the block lasts as long as somebody has this object
            running.handle = ref(self, running.abandoned)
        entered: T = running.manager.__enter__()
        return entered

    __exit__ = Exit(_leave, "_running")


def block(make: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Make a `contextlib.contextmanager` whose generator is always closed when the ``with`` statement is over."""
    managed = contextmanager(make)

    @wraps(make)
    def begun(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Block(managed(*args, **kwargs))

    return begun
