"""Objects that must not be shared between a parent and its forked child.

A child inherits locks that a thread of its parent may have held, and descriptors whose file locks count as the
parent's own. Objects registered here are told in the child, before any of its code runs.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """An object with something to renew."""

    def after_fork(self) -> None:
        """Called in the child, which has one thread at that time."""
        ...


_objects: WeakSet[Inherited] = WeakSet()


def renew_after_fork(thing: Inherited) -> None:
    """Have ``thing.after_fork()`` called in every child forked while it lives."""
    _objects.add(thing)


def _renew() -> None:
    for thing in tuple(_objects):
        thing.after_fork()


os.register_at_fork(after_in_child=_renew)
