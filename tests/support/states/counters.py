"""A process that counts a state up by compare and set: ``python counters.py URL TIMES``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from lastlight_state import StaleVersion, StateStore

if __name__ == "__main__":
    with StateStore.open(sys.argv[1], migrate=False) as store:
        left = int(sys.argv[2])
        while left:
            found = store.states.find("count", scope="s")
            number, version = (0, None) if found is None else (found.value, found.version)
            try:
                store.states.put("count", number + 1, scope="s", expected=version)
                left -= 1
            except StaleVersion:
                continue
