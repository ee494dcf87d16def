"""Agents' logs that nobody has written to for long, by the clock of the tests."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from lastlight_state import StateStore
from lastlight_state.testing.clock import START

LINE = b'{"type": "user"}\n'
RAW = b"a long result"
RAW_NAME = f"raw/{sha256(RAW).hexdigest()}.txt"


def project(store: StateStore) -> Path:
    """The directory where the logs of `old_log` are."""
    return store.settings.agent_sessions / "projects/-app"


def old_log(store: StateStore, session_id: str, *, folder: bool = True) -> Path:
    """A log, with a whole result and the log of a sub-agent in its folder."""
    log = put_old(project(store) / f"{session_id}.jsonl", LINE)
    if folder:
        put_old(project(store) / session_id / RAW_NAME, RAW)
        put_old(project(store) / session_id / "subagents/agent-1.jsonl", LINE)
    return log


def put_old(path: Path, data: bytes) -> Path:
    """A file that was changed last when the tests begin."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return age(path)


def age(path: Path, seconds: float = 0) -> Path:
    """Let a file have been changed last so long after the beginning of the tests."""
    os.utime(path, (START.timestamp() + seconds,) * 2)
    return path


def there(store: StateStore) -> dict[str, bytes]:
    """All files of the project, by their path in it."""
    root = project(store)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
