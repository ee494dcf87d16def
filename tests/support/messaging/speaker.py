"""A process that takes part in a chat: ``speaker.py PART URL [SESSION]``.

It says ``ready``, waits for a line, and plays its part in a far future, when every session of a test is idle:
``resume`` prints what it got, ``die`` is killed as by ``kill -9`` when it is about to insert the new session,
``append`` prints the id of each message that it appended until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine

from lastlight_state import StateStore
from lastlight_state.messaging import ConversationKey

KEY = ConversationKey("slack", "C1", "U1", "T1")


class Future:
    """A clock."""

    def now(self) -> datetime:
        return datetime(2100, 1, 1, tzinfo=UTC)


@contextmanager
def speaking(part: str, url: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The process, ready; `go` lets it play its part."""
    from support.preloaded import Program  # the process itself knows no folder of tests

    command = [sys.executable, __file__, part, url, *more]
    with Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def go(process: subprocess.Popen[str]) -> None:
    """Let a process that is ready play its part."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _resume(store: StateStore) -> None:
    resumed = store.messaging.sessions.resume(KEY)
    _say(json.dumps([resumed.session.id, resumed.created, resumed.replaced]))


def _append(store: StateStore, session_id: str) -> None:
    append = store.messaging.messages.append
    for number in count():
        platform_id = f"{os.getpid()}-{number}" if number % 2 else None
        appended = append(session_id, role="user", content=f"{number}", platform_message_id=platform_id)
        _say(str(appended.message.id))


def _lethal_engine(url: str) -> Engine:
    """An engine whose driver connections end the process at the statement that inserts a session."""

    def die_at(sql: Any) -> None:
        if str(sql).startswith("INSERT INTO messaging_sessions"):
            os.kill(os.getpid(), signal.SIGKILL)

    class LethalConnection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            die_at(sql)
            return super().execute(sql, parameters)

    class LethalCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            die_at(query)
            return super().execute(query, *args, **options)

    if Path(url).is_file():
        return create_engine(f"sqlite:///{url}", connect_args={"factory": LethalConnection})
    return create_engine(url, connect_args={"cursor_factory": LethalCursor})


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(part: str, url: str, *more: str) -> None:
    engine = _lethal_engine(url) if part == "die" else None
    with StateStore.open(url, engine=engine, clock=Future()) as store:
        store.messaging.sessions.find("nobody")
        _say("ready")
        sys.stdin.readline()
        if part == "append":
            _append(store, *more)
        else:
            _resume(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
