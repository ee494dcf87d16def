"""Migrates in processes of their own, forked from this one, which has imported everything.

Reads lines of JSON: ``url``, ``members`` (how many processes, let go together) and ``die_at`` (each is killed as by
``kill -9`` when it is about to execute that many statements; 0: never). Answers each with the list of what the
processes applied, None for those that were killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from lastlight_state.backends import open_backend, postgres, sqlite
from lastlight_state.backends.base import Options
from lastlight_state.migrations import adoption, apply, migrate

LOADED = (adoption, apply, postgres, sqlite)


class Member:
    """One forked process. It says that it is ready, waits to be let go, and says what it applied."""

    def __init__(self, url: str, die_at: int) -> None:
        hear, tell = os.pipe()
        wait, release = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(hear)
            os.close(release)
            _migrate(url, die_at, tell, wait)
            os._exit(0)
        os.close(tell)
        os.close(wait)
        self._hear, self._release = os.fdopen(hear), release

    def hear(self) -> Any:
        line = self._hear.readline()
        return json.loads(line) if line else None

    def go(self) -> None:
        os.close(self._release)

    def end(self) -> None:
        self._hear.close()
        os.waitpid(self.pid, 0)


def _migrate(url: str, die_at: int, tell: int, wait: int) -> None:
    _die_at(die_at)
    os.write(tell, b'"ready"\n')
    os.read(wait, 1)
    try:
        backend = open_backend(url, Options())
        done = migrate(backend)
        said: Any = [*done.revisions, *done.mended]
        backend.close()
    except Exception as error:  # noqa: BLE001 the test is told
        said = repr(error)
    os.write(tell, json.dumps(said).encode() + b"\n")


def _die_at(statements: int) -> None:
    numbers = count(1)

    @event.listens_for(Engine, "before_cursor_execute")
    def counted(*_: Any) -> None:
        if next(numbers) == statements:
            os.kill(os.getpid(), signal.SIGKILL)


def race(url: str, members: int, die_at: int) -> list[Any]:
    crew = [Member(url, die_at) for _ in range(members)]
    assert [member.hear() for member in crew] == ["ready"] * members
    for member in crew:
        member.go()
    told = [member.hear() for member in crew]
    for member in crew:
        member.end()
    return told


if __name__ == "__main__":
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(json.dumps(race(**json.loads(line))) + "\n")
        sys.stdout.flush()
