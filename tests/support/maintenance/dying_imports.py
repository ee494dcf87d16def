"""Imports that die at a line of the library, or are interrupted there.

``python dying_imports.py URL STATE_DIR KIND PATH`` reads numbers from its input. For each it forks a process that
imports, eleven minutes after the one before by its clock, and kills itself with SIGKILL at the line of this number,
counted while the import runs; with ``-N`` where it is about to note its N-th unit. Prints how each ended: ``killed``,
or how many lines there were.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load
from support.tracing import traced

import lastlight_state
from lastlight_state import StateStore
from lastlight_state.maintenance.imports import pieces
from lastlight_state.testing import FrozenClock

OURS = str(Path(lastlight_state.__file__).parent)
#: What an import loads.
PACKAGES = ("maintenance", "receipts", "backends", "outputs", "conversations", "files", "messaging")
#: How long the owner of work must be silent, and a little.
SILENCE = timedelta(minutes=11)


class Lines:
    """Counts the lines of the library that run, and sends this process a signal at one of them."""

    def __init__(self, last: int, number: signal.Signals) -> None:
        self.passed = 0
        self._last, self._number = last, number

    def seen(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        """The trace function."""
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.passed += 1
            if self.passed == self._last:
                os.kill(os.getpid(), self._number)
        return self.seen


def bring_in(store: StateStore, kind: str, path: Path) -> object:
    """Import it, or load it if it is a bundle."""
    maintenance = store.maintenance
    return maintenance.bundles.load(path) if kind == "bundle" else maintenance.imports.run(path)


def _die_before_note(number: int) -> None:
    """The note is the last step of a unit."""
    noted, left = pieces.note, count(1)

    def dying(*given: Any) -> None:
        if next(left) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        noted(*given)

    pieces.note = dying  # type: ignore[assignment]


def main() -> None:
    url, state_dir, kind, path = sys.argv[1:]
    load(*PACKAGES)
    for turn, told in zip(count(1), sys.stdin, strict=False):
        pid = os.fork()
        if pid == 0:
            ended = 1
            try:
                lines = Lines(int(told), signal.SIGKILL)
                _die_before_note(-int(told))
                clock = FrozenClock(FrozenClock().now() + turn * SILENCE)
                with StateStore.open(url, state_dir=Path(state_dir), clock=clock) as store, traced(lines.seen):
                    bring_in(store, kind, Path(path))
                print(lines.passed, flush=True)  # noqa: T201 - read by the test
                ended = 0
            except BaseException:  # noqa: BLE001 - whatever it is, the test is told
                traceback.print_exc()
            finally:
                os._exit(ended)
        status = os.waitpid(pid, 0)[1]
        assert status in (0, signal.SIGKILL), status
        if status:
            print("killed", flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
