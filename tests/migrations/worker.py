"""A process that migrates: ``worker.py URL [STATEMENTS]``.

Says ``ready``, waits for a line, migrates, and prints the revisions that it applied. With ``STATEMENTS`` it is killed
as by ``kill -9`` when it is about to execute that many statements.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import migrate


def die_at(statements: int) -> None:
    numbers = count(1)

    @event.listens_for(Engine, "before_cursor_execute")
    def counted(*_: Any) -> None:
        if next(numbers) == statements:
            os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, statements: str = "0") -> None:
    die_at(int(statements))
    backend = open_backend(url, Options())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(",".join(migrate(backend).revisions) + "\n")
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
