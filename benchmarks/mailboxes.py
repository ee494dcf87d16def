"""Mailboxes beside the original's own statements, each with the openings that its rules of mounts ask for.

Times are those of the processor, for a message they are those of whole rounds. The statements by hand are those of the
original for the same step, on files of ours; every step opens what it uses, and closes it.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state import clock
from lastlight_state.backends.sqlite import unchanged
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, Routing

#: How many idle sessions are swept, and how often.
SESSIONS, SWEEPS = 200, 10
_PLACE = Routing("slack", "C1")
_DUE = "(process_after IS NULL OR datetime(process_after) <= datetime('now'))"
_ACKED = "SELECT message_id, status FROM processing_ack WHERE status IN ('completed', 'failed')"
_CLAIMED = "SELECT message_id, status_changed FROM processing_ack WHERE status = 'processing'"
_WAKING = f"SELECT count(*) FROM messages_in WHERE status = 'pending' AND trigger = 1 AND {_DUE}"
_RECURRING = (
    "SELECT id, kind, content, recurrence, process_after, series_id FROM messages_in "
    "WHERE status = 'completed' AND recurrence IS NOT NULL"
)
_WAITING = (
    "SELECT * FROM messages_out WHERE deliver_after IS NULL OR deliver_after <= datetime('now') ORDER BY timestamp"
)
_POLL = f"SELECT * FROM messages_in WHERE status = 'pending' AND {_DUE} ORDER BY seq DESC LIMIT 10"
_SEND = (
    "INSERT INTO messages_in (id, seq, kind, timestamp, series_id, platform_id, channel_type, content) "
    "SELECT ?, coalesce(max(seq), 0) + 2, 'chat', datetime('now'), ?, 'C1', 'slack', '{}' FROM messages_in"
)
_REPLY = (
    "INSERT INTO messages_out (id, seq, in_reply_to, timestamp, kind, platform_id, channel_type, content) "
    "SELECT ?, coalesce(max(seq), -1) + 2, ?, datetime('now'), 'chat', 'C1', 'slack', '{}' FROM messages_out"
)
_ACK = "INSERT OR REPLACE INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, datetime('now'))"
_Step = tuple[bool, str, Sequence[Any]]


class _ByHand:
    """The original's statements on one pair of files. ``writes`` is the side that opens its file for writing."""

    def __init__(self, folder: Path) -> None:
        self._files = {True: folder / "inbound.db", False: folder / "outbound.db"}

    def run(self, writes: bool | None, *steps: _Step) -> None:
        """Open what the steps need, run them and close it. A step says whether its file is the host's."""
        with ExitStack() as stack:
            opened = {
                of_host: stack.enter_context(closing(self._opened(of_host, is_own=of_host is writes)))
                for of_host in dict.fromkeys(step[0] for step in steps)
            }
            for of_host, statement, values in steps:
                opened[of_host].execute(statement, values).fetchall()

    def _opened(self, of_host: bool, *, is_own: bool) -> sqlite3.Connection:
        mode = "rw" if is_own else "ro"
        connection = sqlite3.connect(f"file:{self._files[of_host]}?mode={mode}", uri=True, isolation_level=None)
        if is_own:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA mmap_size = 0")
        return connection

    def sweep(self) -> None:
        """Look for acknowledgements, due work, claims and series."""
        self.run(True, (False, _ACKED, ()), (True, _WAKING, ()), (False, _CLAIMED, ()), (True, _RECURRING, ()))

    def drain(self) -> None:
        """Look for messages that wait."""
        self.run(True, (False, _WAITING, ()), (True, "SELECT message_out_id FROM delivered", ()))

    def poll(self) -> None:
        """Look for work."""
        self.run(False, (True, _POLL, ()), (False, "SELECT message_id FROM processing_ack", ()))

    def message(self) -> None:
        """Send, take, answer and complete one, and settle it."""
        sent, reply = str(uuid4()), str(uuid4())
        self.run(True, (False, "SELECT max(seq) FROM messages_out", ()), (True, _SEND, (sent, sent)))
        self.run(
            False,
            (True, _POLL, ()),
            (False, "SELECT message_id FROM processing_ack", ()),
            (False, _ACK, (sent, "processing")),
        )
        self.run(False, (True, "SELECT max(seq) FROM messages_in", ()), (False, _REPLY, (reply, sent)))
        self.run(False, (False, _ACK, (sent, "completed")))
        settle = "UPDATE messages_in SET status = 'completed' WHERE id = ?"
        self.run(True, (False, _ACKED, ()), (True, settle, (sent,)))


def results() -> Iterator[Result]:
    """Yield an idle sweep, drain and poll, a whole message, and what a sweep of many idle sessions takes of a core."""
    with tempfile.TemporaryDirectory() as folder:
        boxes = Mailboxes(Path(folder))
        host, agent = boxes.create("group", "ours"), boxes.agent("group", "ours")
        by_hand = _ByHand(boxes.create("group", "by-hand").folder)
        agent.start()
        yield _compared("mailbox: a whole message", partial(_message, host, agent), by_hand.message, calls=20)
        host.sweep.run(agent_started_at=None)
        _settle(host)
        idle = _ByHand(host.folder)
        for name, ours, raw in (
            ("idle sweep", lambda: boxes.sweep([("group", "ours")], lambda *_: None), idle.sweep),
            ("idle drain", lambda: host.outbox.drain(lambda _: None), idle.drain),
            ("empty poll", agent.inbox.take, idle.poll),
        ):
            yield _compared(f"mailbox: {name}", ours, raw)
        yield _share(boxes)


def _message(host: HostMailbox, agent: AgentMailbox) -> None:
    sent = host.inbox.send(kind="chat", content={}, routing=_PLACE)
    batch = agent.inbox.take()
    agent.outbox.send(kind="chat", content={}, routing=_PLACE, in_reply_to=sent.id)
    agent.inbox.complete(*(message.id for message in batch))
    host.sweep.sync()


def _compared(path: str, ours: Callable[[], object], raw: Callable[[], object], *, calls: int = 100) -> Result:
    return compare(path, "sqlite", ours, raw, goal=goal(path, "sqlite"), calls=calls)


def _settle(host: HostMailbox) -> None:
    """Wait until the files count as settled."""
    while True:
        found = unchanged.stamps_of(host.folder, ("inbound.db", "outbound.db"))
        if found is not None and unchanged.are_settled(found, clock.nanoseconds()):
            return
        time.sleep(0.1)


def _share(boxes: Mailboxes) -> Result:
    """Return the milliseconds of a core that ten thousand idle sessions take, beside a tenth of a minute."""
    names = [("many", f"s-{number}") for number in range(SESSIONS)]
    hosts = [boxes.create(*name) for name in names]
    _settle(hosts[-1])
    boxes.sweep(names, lambda *_: datetime.now(UTC))
    began = time.process_time()
    for _ in range(SWEEPS):
        boxes.sweep(names, lambda *_: datetime.now(UTC))
    taken = (time.process_time() - began) / SWEEPS / SESSIONS * 10_000 * 1000
    ratio = round(taken / 6000, 2)
    return Result("mailbox: 10,000 idle sessions", "sqlite", round(taken), 6000, ratio, ratio, 1.0, "ms")
