"""Blocks that always end, whatever exception interrupts them.

A signal handler, `RecursionError` and `MemoryError` can raise between any two instructions, even in the first one of an
``__exit__`` or in the middle of a ``finally``. So a block's resource is not tied to instructions but to the ``with``
statement itself: the statement holds a single callable, to which no other object refers. When the callable is
garbage-collected, the block ends if it has not ended yet, even while the exception and its frames still exist.

The callable is a `functools.partial`, which a statement cannot call without keeping a reference. A bound method can be
taken apart: CPython does so from 3.14 on, and drops it before the body begins. If an interpreter drops the callable
late, the block ends late. So a caller that waits for the block's resource must check repeatedly whether the callable
still exists.
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
    """A resource that a ``with`` statement holds. Other threads can check whether the statement is over."""

    #: A weak reference to the statement's callable. None before the block begins, and after it has ended normally.
    handle: ref[Any] | None = None

    @property
    def is_gone(self) -> bool:
        """True if the statement is over but the block has not ended."""
        return self.handle is not None and self.handle() is None

    def end_interrupted(self, handle: object) -> None:
        """End an interrupted block after its statement is over, as far as that is possible here."""


class Exit:
    """The ``__exit__`` of a class: a partial over the block's state, created for each ``with`` statement.

    Its frames refer to the state instead of the partial, so that they do not keep the partial from being collected.
    """

    def __init__(self, leave: Callable[[Any, Any, Any, Any], Any], state: str | None = None) -> None:
        self._leave = leave
        self._state = state

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, block: Any, owner: type) -> Any:
        if block is None:  # contextlib.ExitStack reads it from the class
            return self._leave_by_hand
        held = block if self._state is None else getattr(block, self._state)
        leave = partial(self._leave, held)
        if held.handle is None or held.handle() is not block:  # else entered by a call: the caller has the block
            held.handle = ref(leave, held.end_interrupted)
        return leave

    def _leave_by_hand(self, block: Any, *raised: Any) -> Any:
        return getattr(block, self._name)(*raised)


class _Running(HeldResource):
    """A block whose body runs between the two halves of a generator."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager

    def end_interrupted(self, handle: object) -> None:
        with suppress(BaseException):  # the first exception goes on
            self.manager.gen.close()


def _leave(running: _Running, kind: Any, error: Any, trace: Any) -> Any:
    if kind is None and running.is_gone:
        raise MisuseError("the garbage collector ended this block before its body came to its end")
    swallowed = running.manager.__exit__(kind, error, trace)
    running.handle = None
    return swallowed


class _Block(AbstractContextManager[T]):
    """The context manager that `block` creates."""

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._running = _Running(manager)

    def __enter__(self) -> T:
        running = self._running
        if running.handle is None:  # entered by a call: the block lasts as long as somebody holds this object
            running.handle = ref(self, running.end_interrupted)
        entered: T = running.manager.__enter__()
        return entered

    __exit__ = Exit(_leave, "_running")


def block(make: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Return a `contextlib.contextmanager` whose generator is always closed once the ``with`` statement is over."""
    managed = contextmanager(make)

    @wraps(make)
    def make_block(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _Block(managed(*args, **kwargs))

    return make_block
