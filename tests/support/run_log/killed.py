"""Child processes that are killed at one system call after the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: What changes files and directories.
CALLS = "write fsync fdatasync link rename unlink mkdir"
STEPS = range(18)


def forked(work: Callable[[], object]) -> int:
    """A child process that does the work, and tells by its exit code whether it could."""
    child = os.fork()
    if child:
        return child
    code = 1
    with suppress(BaseException):
        work()
        code = 0
    os._exit(code)


def ended(child: int) -> int:
    """The exit code of a child, or the negative number of the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, work: Callable[[], object]) -> int:
    """The exit code of a child that is killed at the n-th system call of those that change files."""
    left = [step]

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return call

    def doomed() -> None:
        for name in CALLS.split():
            setattr(os, name, dying(getattr(os, name)))
        work()

    return ended(forked(doomed))
