"""The goals: the most that a path may cost, as a multiple of hand-written driver code for the same work."""

from __future__ import annotations

GOALS: dict[tuple[str, str], float] = {
    ("create run", "sqlite"): 1.5,
    ("create run", "postgresql"): 0.8,
    ("append phase and scratch", "sqlite"): 1.3,
    ("append phase and scratch", "postgresql"): 1.25,
    ("start execution", "sqlite"): 1.45,
    ("start execution", "postgresql"): 0.8,
    ("finish execution", "sqlite"): 1.5,
    ("finish execution", "postgresql"): 0.8,
    ("take a run", "sqlite"): 1.5,
    ("take a run", "postgresql"): 1.25,
    ("heartbeat", "sqlite"): 1.5,
    ("heartbeat", "postgresql"): 1.25,
    ("heartbeat of 100 runs", "sqlite"): 2.0,
    ("heartbeat of 100 runs", "postgresql"): 1.25,
    ("pause at a gate", "sqlite"): 1.5,
    ("pause at a gate", "postgresql"): 1.25,
    ("answer a gate", "sqlite"): 1.5,
    ("answer a gate", "postgresql"): 1.25,
    ("post message", "sqlite"): 1.35,
    ("post message with an id", "sqlite"): 1.4,
    ("post message", "postgresql"): 0.8,
    ("append an event", "sqlite"): 1.5,
    ("append an event", "postgresql"): 1.0,
    ("append an event with a key", "sqlite"): 1.5,
    ("append an event with a key", "postgresql"): 1.25,
    ("append 1,000 events", "sqlite"): 1.2,
    ("append 1,000 events", "postgresql"): 1.2,
    ("record a score", "sqlite"): 1.5,
    ("record a score", "postgresql"): 0.8,
    ("put an output", "sqlite"): 1.5,
    ("put an output", "postgresql"): 0.8,
    ("get an output", "sqlite"): 1.5,
    ("get an output", "postgresql"): 1.25,
    ("get run", "sqlite"): 2.1,
    ("get run", "postgresql"): 1.25,
    ("list 20 runs", "sqlite"): 1.5,
    ("list 20 runs", "postgresql"): 1.25,
    ("list 20 runs by status", "sqlite"): 1.5,
    ("list 20 runs by status", "postgresql"): 1.25,
    ("list 20 runs, active first", "sqlite"): 1.5,
    ("list 20 runs, active first", "postgresql"): 1.25,
    ("append a line", "files"): 2.0,
    ("append a line, alone", "files"): 2.0,
    ("read a line", "files"): 1.5,
    ("awaited get", "sqlite"): 3.0,
    ("awaited get", "postgresql"): 1.5,
    ("awaited write", "sqlite"): 3.0,
    ("awaited write", "postgresql"): 1.5,
    ("awaited write, 16 tasks", "sqlite"): 1.3,
    ("awaited write, 16 tasks", "postgresql"): 1.5,
    ("write, full, 64 threads", "sqlite"): 0.2,
    ("write, full, 64 tasks", "sqlite"): 0.2,
    ("import", "python"): 1.5,
    ("import and use the store's name", "python"): 1.7,
    ("check", "command"): 2.0,
    ("current", "command"): 2.0,
    ("ls", "command"): 2.0,
    ("stats", "command"): 2.0,
    ("history", "command"): 0.4,
    ("--help", "command"): 0.4,
    ("open a current database", "sqlite"): 5.0,
    ("mailbox: a whole message", "sqlite"): 2.5,
    ("mailbox: idle sweep", "sqlite"): 3.0,
    ("mailbox: idle drain", "sqlite"): 2.0,
    ("mailbox: empty poll", "sqlite"): 2.0,
    **{
        (f"seed: index bytes, {table}", database): 1.6
        for table in ("executions", "messaging_messages", "workflow_approvals")
        for database in ("sqlite", "postgresql")
    },
    **{
        (f"seed: log bytes, {path}", "postgresql"): 1.6
        for path in ("create run", "start execution", "finish execution", "chat message")
    },
}


def goal(path: str, database: str) -> float | None:
    """Return the goal of a path, None where none is set."""
    return GOALS.get((path, database))
