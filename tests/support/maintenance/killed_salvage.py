"""Salvages a line file, and dies by SIGKILL. Arguments: file, at what, and ``replace`` or nothing.

At what: before ``take_tail``, ``flush`` or ``keep``, when all has names (``named``), or before a ``rename``.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.files.jsonl import files, repair
from lastlight_state.maintenance.upkeep.repair import Repair


def die(*_: Any, **__: Any) -> None:
    """The end."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    file, where, *rest = sys.argv[1:]
    target, name = {"named": (files, "sync"), "rename": (os, "rename")}.get(where, (repair._Copy, where))
    if where == "named":
        setattr(repair._Copy, "flush", lambda _: None)  # noqa: B010
    setattr(target, name, die)
    Repair([], SYSTEM_CLOCK).salvage(file, replace=bool(rest))
