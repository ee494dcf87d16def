"""A disk of which one call fails: the first, the second, and so on, as often as a piece of work makes some."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Calls that may fail on a disk that goes bad, or at a file that somebody takes away.
CALLS = "open stat lstat listdir scandir unlink rename link mkdir rmdir pread write fsync fdatasync".split()


class Failure(NamedTuple):
    """The call that failed, and what the work gave or raised then."""

    call: str
    outcome: Any


class FailingDisk:
    """Lets the call with the number ``failing``, from 0 on, raise an OSError; ``failed`` is its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, failing: int, code: int) -> None:
        self.failed = ""
        self._left = failing
        self._code = code
        self._above = {"/", *root.parts}  # directories on the way to the files, which are opened each time
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if name != "open" or str(given[0]) not in self._above:
                self._left -= 1
            if self._left == -1 and not self.failed:
                self.failed = name
                raise OSError(self._code, os.strerror(self._code))
            return real(*given, **named)

        return call


def failures(
    root: Path, work: Callable[[Any], object], prepared: Callable[[int], Any], code: int = errno.EIO
) -> Iterator[Failure]:
    """What the work does with each of its calls failing, one at a time. It ends when the work has made them all.

    ``prepared`` gives what the work is done with, each time.
    """
    for failing in range(500):
        subject = prepared(failing)
        with pytest.MonkeyPatch.context() as patched:
            disk = FailingDisk(patched, root, failing, code)
            try:
                outcome: object = work(subject)
            except Exception as error:  # noqa: BLE001 - judged by the test
                outcome = error
        if not disk.failed:
            return
        yield Failure(disk.failed, outcome)
    raise AssertionError("the work makes too many calls")
