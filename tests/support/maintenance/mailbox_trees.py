"""Folders of sessions like those of the program that the files of mailboxes come from."""

from __future__ import annotations

import os
from pathlib import Path

from support.mailbox.files import INBOUND, OUTBOUND, made, sql

#: The session that tests import.
KEY = ("ag-1", "sess-1")
_IN = "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES (?, ?, 'chat', '2026-01-05T10:00:00.000Z', ?)"
_OUT = "INSERT INTO messages_out (id, seq, timestamp, kind, content) VALUES (?, ?, '2026-01-05 10:00:01', 'chat', '{}')"


def write_session(root: Path, group: str = KEY[0], session: str = KEY[1], *, inbound: str = INBOUND) -> Path:
    """The folder of a session: two messages of the host, one of its agent, and an attachment of each."""
    folder = root / group / session
    made(folder / "inbound.db", inbound)
    made(folder / "outbound.db", OUTBOUND)
    say(folder, "m-1", 2)
    say(folder, "m-2", 4)
    answer(folder, "a-1", 3)
    attach(folder, "inbox/m-1/a.txt", b"in")
    attach(folder, "outbox/a-1/b.bin", b"\0\1out")
    return folder


def say(folder: Path, message_id: str, seq: int | str) -> None:
    """A message of the host, as the original writes it."""
    sql(folder / "inbound.db", _IN, [message_id, seq, '{"text":"hello"}'])


def answer(folder: Path, message_id: str, seq: int) -> None:
    """A message of the agent."""
    sql(folder / "outbound.db", _OUT, [message_id, seq])


def attach(folder: Path, name: str, data: bytes) -> Path:
    """A file below the folder, of a time long ago."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path
