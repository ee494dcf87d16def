"""A trace function for the length of a block, after which coverage's own traces on."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def traced(seen: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Call ``seen`` for what this thread runs in the block.

    The function that was there before is set again, not None: without it coverage would miss what later tests reach.
    """
    before = sys.gettrace()
    sys.settrace(seen)
    try:
        yield
    finally:
        sys.settrace(before)
