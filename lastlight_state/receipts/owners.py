"""Processes as receipts name them, and whether one has ended.

The kernel of this machine is asked, so the answer is sure where it is one: a process of another machine, of another
container, or from before a restart of the machine is not known to have ended.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

_PROC = Path("/proc")
#: Of `/proc/PID/stat`, counted from behind the name: the state, and when the process began, in ticks since the boot.
_STATE, _BEGAN = 0, 19
_GONE = ("Z", "X")  # killed, and not yet collected by its parent


def this_process() -> str:
    """Return the name of this process: host, process id, and on Linux a digest of the kernel and when it began."""
    pid = os.getpid()
    name = f"{socket.gethostname()[:200]}:{pid}"
    kernel, began = _kernel(), _began(pid)
    return f"{name}:{kernel}:{began}" if kernel and began else name


def has_ended(owner: str) -> bool:
    """Return True if the owner is a process that is known to have ended. False says nothing."""
    host, *rest = owner.rsplit(":", 3)
    if len(rest) != 3 or host != socket.gethostname()[:200] or rest[1] != _kernel() or not rest[0].isdecimal():
        return False
    pid, _, began = rest
    try:
        os.kill(int(pid), 0)  # asks, and sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # a process of another user, or no number of a process
        pass
    found = _began(int(pid))
    return found is not None and found != began


def _kernel() -> str | None:
    """What tells this boot of this machine, and this space of process ids, from all others."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        return hashlib.sha256(f"{boot}{(_PROC / 'self/ns/pid').readlink()}".encode()).hexdigest()[:12]
    except OSError:
        return None


def _began(pid: int) -> str | None:
    """When a process began; an empty text for one that was killed, None where that cannot be read."""
    try:
        told = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if told[_STATE] in _GONE else told[_BEGAN]
    except (OSError, IndexError):
        return None
