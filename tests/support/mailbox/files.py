"""Plain SQL on the files of a mailbox, as another program would run it, and short ways to send."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, MessageIn, MessageOut, Routing, When

PLACE = Routing("slack", "C1", "T1")

#: The statements of the original, as its documentation gives them.
INBOUND = """
CREATE TABLE messages_in (
  id             TEXT PRIMARY KEY,
  seq            INTEGER UNIQUE,
  kind           TEXT NOT NULL,
  timestamp      TEXT NOT NULL,
  status         TEXT DEFAULT 'pending',
  process_after  TEXT,
  recurrence     TEXT,
  series_id      TEXT,
  tries          INTEGER DEFAULT 0,
  trigger        INTEGER NOT NULL DEFAULT 1,
  platform_id    TEXT,
  channel_type   TEXT,
  thread_id      TEXT,
  content        TEXT NOT NULL,
  source_session_id TEXT,
  on_wake        INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX idx_messages_in_series ON messages_in(series_id);
CREATE TABLE delivered (
  message_out_id      TEXT PRIMARY KEY,
  platform_message_id TEXT,
  status              TEXT NOT NULL DEFAULT 'delivered',
  delivered_at        TEXT NOT NULL
);
CREATE TABLE destinations (
  name           TEXT PRIMARY KEY,
  display_name   TEXT,
  type           TEXT NOT NULL,
  channel_type   TEXT,
  platform_id    TEXT,
  agent_group_id TEXT
);
CREATE TABLE session_routing (
  id           INTEGER PRIMARY KEY CHECK (id = 1),
  channel_type TEXT,
  platform_id  TEXT,
  thread_id    TEXT
);
"""
OUTBOUND = """
CREATE TABLE messages_out (
  id            TEXT PRIMARY KEY,
  seq           INTEGER UNIQUE,
  in_reply_to   TEXT,
  timestamp     TEXT NOT NULL,
  deliver_after TEXT,
  recurrence    TEXT,
  kind          TEXT NOT NULL,
  platform_id   TEXT,
  channel_type  TEXT,
  thread_id     TEXT,
  content       TEXT NOT NULL
);
CREATE TABLE processing_ack (
  message_id     TEXT PRIMARY KEY,
  status         TEXT NOT NULL,
  status_changed TEXT NOT NULL
);
CREATE TABLE session_state (
  key        TEXT PRIMARY KEY,
  value      TEXT NOT NULL,
  updated_at TEXT NOT NULL
);
"""
#: How the files looked before ``series_id``, ``tries``, ``trigger`` and later columns were added.
OLD_INBOUND = """
CREATE TABLE messages_in (
  id TEXT PRIMARY KEY, seq INTEGER UNIQUE, kind TEXT NOT NULL, timestamp TEXT NOT NULL, status TEXT DEFAULT 'pending',
  process_after TEXT, recurrence TEXT, platform_id TEXT, channel_type TEXT, thread_id TEXT, content TEXT NOT NULL
);
CREATE TABLE delivered (message_out_id TEXT PRIMARY KEY, delivered_at TEXT NOT NULL);
"""


def sql(path: Path, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """Run one statement on a file and commit it; its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def made(path: Path, statements: str) -> None:
    """A file that these statements make."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)


def inbound(mailbox: HostMailbox | AgentMailbox) -> Path:
    """The host's file."""
    return mailbox.folder / "inbound.db"


def outbound(mailbox: HostMailbox | AgentMailbox) -> Path:
    """The agent's file."""
    return mailbox.folder / "outbound.db"


def send(host: HostMailbox, message_id: str | None = None, *, kind: str = "chat", **when: Any) -> MessageIn:
    """A message for the agent."""
    return host.inbox.send(message_id, kind=kind, content={"text": "hello"}, routing=PLACE, when=When(**when))


def reply(agent: AgentMailbox, message_id: str | None = None, *, text: str = "yes", **options: Any) -> MessageOut:
    """A message of the agent."""
    return agent.outbox.send(message_id, kind="chat", content={"text": text}, routing=PLACE, **options)


def ids(messages: Any) -> list[str]:
    """The ids of messages, in their order."""
    return [message.id for message in messages]
