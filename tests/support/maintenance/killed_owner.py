"""A process that begins maintenance, says so, and waits to be killed: ``python killed_owner.py URL STATE_DIR KIND``."""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from lastlight_state import StateStore
from lastlight_state.receipts import steps
from lastlight_state.testing import FrozenClock

if __name__ == "__main__":
    url, state_dir, *kinds = sys.argv[1:]
    with StateStore.open(url, state_dir=state_dir, clock=FrozenClock()) as store:
        receipts: Any = store.receipts
        for kind in kinds:
            receipts.begin(kind, owner=steps.this_process(), policy={})
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        time.sleep(600)
