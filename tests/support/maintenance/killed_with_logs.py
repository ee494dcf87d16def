"""A prune with logs, or of logs, that is killed at one place.

``python killed_with_logs.py URL STATE_DIR NOW PLACE ARCHIVE`` prunes all old runs with their logs, and without ARCHIVE
all old logs of agents. It dies by SIGKILL between the archive and the removal of the rows (``archived``), between
the commit and the first log (``committed``), or when some files of a log are gone (``half``).
"""

import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from lastlight_state import StateStore
from lastlight_state.files.agent_log import repair
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune import batches
from lastlight_state.testing import FrozenClock

#: The function before whose call the process dies.
PLACES: dict[str, tuple[Any, str]] = {
    "archived": (batches, "_remove_records"),
    "committed": (repair, "remove"),
}


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fails_at_the_log(real: Callable[..., None]) -> Callable[..., None]:
    """An ``unlink`` that dies at the log itself, which goes after its folder."""

    def unlink(name: Any, **named: Any) -> None:
        if name == "s-1.jsonl":
            die()
        real(name, **named)

    return unlink


def main() -> None:
    url, state_dir, now, place, *archives = sys.argv[1:]
    policies = [PrunePolicy("runs", keep_n=0, archive=archive, with_logs="yes") for archive in archives]
    clock = FrozenClock(datetime.fromisoformat(now))
    with StateStore.open(url, clock=clock, state_dir=state_dir) as store:
        if place == "half":
            os.unlink = fails_at_the_log(os.unlink)
        else:
            setattr(*PLACES[place], die)
        store.maintenance.prune.run(*policies or [PrunePolicy("agent-logs", keep_n=0)])


if __name__ == "__main__":
    main()
