"""Processes that a test starts and never leaves behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from support.preloaded import Program


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process whose output is read as text. Killed when the block ends, so that no failure becomes a wait."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with Program(command, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()
