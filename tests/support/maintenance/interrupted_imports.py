"""Commands that get SIGINT at a line of the library, counted while the work goes on that their receipt tells of.

``python interrupted_imports.py WORDS …`` reads numbers from its input. For each it forks a process that runs the
program on these words, and interrupts it at the line of this number. Prints the exit code and what was complained of,
as JSON.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load
from support.maintenance.dying_imports import PACKAGES, Lines
from support.tracing import traced

from lastlight_state.cli import main as program
from lastlight_state.maintenance.shared import jobs


def interrupted(line: int) -> tuple[int, str]:
    """The exit code of the program, and what it complained of."""
    lines, known, complaints = Lines(line, signal.SIGINT), jobs.interruptible, io.StringIO()

    @contextmanager
    def counted(*given: Any, **named: Any) -> Iterator[None]:
        with known(*given, **named), traced(lines.seen):
            yield

    jobs.interruptible = counted
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(complaints):
            program()
    except SystemExit as ended:
        return int(ended.code or 0), complaints.getvalue()
    raise AssertionError


def main() -> None:
    load(*PACKAGES, "cli")
    for told in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                print(json.dumps(interrupted(int(told))), flush=True)  # noqa: T201 - read by the test
            finally:
                os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
