"""The heartbeat: a file whose time of change the agent sets. It is never a write to a database."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

from lastlight_state.clock import of_file
from lastlight_state.jsonl import places
from lastlight_state.mailbox.folder import HEARTBEAT


def beat(folder: Path, now: datetime) -> bool:
    """Set the heartbeat to ``now``; whether that was possible. Follows no link."""
    try:
        descriptor = places.opened_file(folder / HEARTBEAT, os.O_WRONLY | os.O_CREAT)
    except OSError:
        return False
    try:
        moment = int(now.timestamp() * 1000) * 1_000_000
        os.utime(descriptor, ns=(moment, moment))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def last_beat(folder: Path) -> datetime | None:
    """When the agent last set it; None if it never did, or if something else has the name."""
    try:
        found = (folder / HEARTBEAT).lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return of_file(found.st_mtime_ns)
