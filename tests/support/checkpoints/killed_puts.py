"""A process that puts checkpoints until it is killed, and says each that was stored: ``python killed_puts.py URL``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.checkpoints.steps import step

from lastlight_state import StateStore

CHANNELS = "abcdefgh"

if __name__ == "__main__":
    with StateStore.open(sys.argv[1], migrate=False) as store:
        number = 0
        while True:
            number += 1
            data = "x" * 2_000 + str(number)
            store.checkpoints.put("t", step(number, {channel: f"{channel}{data}" for channel in CHANNELS}))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
