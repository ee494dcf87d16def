"""Imports run folders, and dies by SIGKILL at one of its transactions. Arguments: URL, folder, which transaction."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lastlight_state import StateStore
from lastlight_state.maintenance.imports import ledger

if __name__ == "__main__":
    url, folder = sys.argv[1], sys.argv[2]
    living = iter(range(int(sys.argv[3]) - 1))
    noted = ledger.note

    def dying(*given: Any) -> Any:
        """The last step of a unit, or the end."""
        if next(living, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return noted(*given)

    ledger.note = dying  # type: ignore[assignment]
    with StateStore.open(url) as store:
        store.maintenance.imports.run(folder)
