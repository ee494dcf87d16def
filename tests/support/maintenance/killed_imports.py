"""Imports a folder, and dies by SIGKILL in one of its units. Arguments: URL, folder, which unit, and optionally where.

``note`` is before the last step of the unit, and ``copy`` before attachments of a mailbox are copied.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lastlight_state import StateStore
from lastlight_state.maintenance.imports import pieces
from lastlight_state.maintenance.imports.mailbox_pieces import Attachments

_PLACES: dict[str, Any] = {"note": pieces, "copy": Attachments}

if __name__ == "__main__":
    url, folder, at, where = (*sys.argv[1:], "note")[:4]
    living = iter(range(int(at) - 1))
    real = getattr(_PLACES[where], where)

    def dying(*given: Any) -> Any:
        """The real function, or the end."""
        if next(living, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)

    setattr(_PLACES[where], where, dying)
    with StateStore.open(url) as store:
        store.maintenance.imports.run(folder)
