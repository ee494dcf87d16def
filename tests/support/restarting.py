"""A Postgres server of a test's own that can be stopped and started again on the same data."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lastlight_state.testing.server import LocalServer, in_wheels, installed_servers

FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT


class Restartable:
    """A server that keeps what it has committed when it dies, as servers in production do."""

    def __init__(self, server: LocalServer) -> None:
        self.url = server.url
        self._data = server.folder / "data"
        self._mine: subprocess.Popen[bytes] | None = None

    def restart(self, how: signal.Signals = FAST) -> None:
        """Stop the server and start it again."""
        self.stop(how)
        self.start()

    def stop(self, how: signal.Signals = FAST) -> None:
        """Stop the server; returns when it is gone."""
        os.kill(int(self._line(0)), how)
        if self._mine is not None:
            self._mine.wait(30)
        _until(lambda: not (self._data / "postmaster.pid").exists())

    def start(self) -> None:
        """Start the server as it was started before; returns when it answers."""
        self._mine = subprocess.Popen(
            shlex.split((self._data / "postmaster.opts").read_text()),
            cwd=self._data.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **_owner(self._data),
        )
        _until(lambda: self._line(7) == "ready")

    def close(self) -> None:
        """Stop what `restart` has started."""
        if self._mine is not None and self._line(0):
            self.stop(IMMEDIATE)

    def _line(self, number: int) -> str:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()[number].strip()
        except (OSError, IndexError):
            return ""


@contextmanager
def restartable_server() -> Iterator[Restartable]:
    """A server of the caller's own. Raises when this machine has no programs for one."""
    binaries = next(iter([*installed_servers(), *in_wheels()]))
    with LocalServer(binaries, settings=("synchronous_commit=on",)) as server:
        restartable = Restartable(server)
        try:
            yield restartable
        finally:
            restartable.close()


def _owner(data: Path) -> dict[str, Any]:
    """What makes a process of root's the server's user, and of others' what it is."""
    found = data.stat()
    return {} if os.geteuid() else {"user": found.st_uid, "group": found.st_gid, "extra_groups": []}


def _until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)
