"""A primary and its streaming standby, and an endpoint that leads to one of them, as a proxy or a name does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from lastlight_state.testing.server import LocalServer, in_wheels, installed_servers

#: A commit is acknowledged when the standby shows it.
SYNCHRONOUS = ("synchronous_standby_names=*", "synchronous_commit=remote_apply", "fsync=off")
_PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Pair:
    """A primary and a standby that follows it."""

    primary: LocalServer
    standby: LocalServer

    @property
    def url(self) -> str:
        """Return the URL of both as libpq writes several hosts in options: the one that takes writes is used."""
        hosts = ",".join(f"{server.folder}/s" for server in (self.primary, self.standby))
        return f"postgresql://postgres@/postgres?host={hosts}&port=5432,5432&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary without ceremony, and promote the standby."""
        self.primary.stop()
        with closing(connected(self.standby)) as connection:
            connection.execute("SELECT pg_promote()")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")

    def caught_up(self) -> None:
        """Wait until the standby shows what the primary has committed."""
        with closing(connected(self.primary)) as first, closing(connected(self.standby)) as second:
            first.execute("SET synchronous_commit = on")  # so that what committed before this is written, too
            first.execute("SELECT pg_logical_emit_message(true, 'caught up', '')")
            [position] = first.execute("SELECT pg_current_wal_lsn()").fetchone()  # type: ignore[misc]
            until(lambda: _one(second, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position))


@contextmanager
def pair(*settings: str) -> Iterator[Pair]:
    """Start both. Raises when this machine has no programs for them."""
    binaries = next(iter([*installed_servers(), *in_wheels()]))
    with (
        LocalServer(binaries, replicated=True, settings=settings) as primary,
        LocalServer(binaries, standby_of=primary, settings=[one for one in settings if "standby" not in one]) as second,
    ):
        yield Pair(primary, second)


def connected(server: LocalServer) -> psycopg.Connection[Any]:
    """Return a connection of the caller's own, in autocommit."""
    return psycopg.connect(f"host={server.folder}/s port=5432 user=postgres", autocommit=True)


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Endpoint:
    """A socket whose new connections go to ``target``. Those that are open stay where they are until `cut`."""

    def __init__(self, folder: Path, target: LocalServer) -> None:
        self.target = target
        self.url = f"postgresql://postgres@/postgres?host={folder}&port=5432"
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.5432")
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                try:
                    far.connect(f"{self.target.folder}/s/.s.PGSQL.5432")
                except OSError:
                    near.close()
                    far.close()
                    continue
                self._open += [near, far]
                threading.Thread(target=_carry, args=(near, far), daemon=True).start()


def _carry(near: socket.socket, far: socket.socket) -> None:
    back = threading.Thread(target=_pump, args=(far, near), daemon=True)
    back.start()
    _pump(near, far)
    back.join()
    near.close()
    far.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _one(connection: psycopg.Connection[Any], sql: str, *values: Any) -> Any:
    row = connection.execute(sql, values).fetchone()
    return row[0] if row else None
