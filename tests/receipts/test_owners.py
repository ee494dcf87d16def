"""Work whose process has ended is gone on with at once; whoever may be at work is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.maintenance import killed_owner
from support.preloaded import Program

from lastlight_state import Conflict
from lastlight_state.receipts import models, steps
from lastlight_state.testing import Database


@contextmanager
def at_work(database: Database) -> Iterator[subprocess.Popen[str]]:
    """A process that does maintenance of every kind."""
    command = [sys.executable, killed_owner.__file__, database.url, str(database.state_dir), *sorted(models.KINDS)]
    with Program(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def test_maintenance_that_was_killed_hinders_nobody_and_is_resumed_at_once(fresh_database: Database) -> None:
    """maintenance OP-7: while its process lives nobody else begins; no time passes between the kill and the next."""
    receipts: Any = fresh_database.open().receipts
    with at_work(fresh_database) as process:
        begun = {one.kind: one for one in receipts.list().items}
        assert begun.keys() == models.KINDS
        for one in begun.values():
            attempts = (partial(receipts.begin, one.kind, policy={}), partial(receipts.resume, one.id))
            for attempt in attempts:
                with pytest.raises(Conflict, match="is running already"):
                    attempt(owner=steps.this_process())
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not collected yet
        assert receipts.resume(begun.pop("prune").id, owner=steps.this_process()).epoch == 2
        process.wait()
        for kind, one in begun.items():
            receipts.begin(kind, owner=steps.this_process(), policy={})
            assert receipts.get(one.id).state == "interrupted"


def test_only_a_process_of_this_machine_is_known_to_have_ended() -> None:
    """maintenance OP-7: one of another machine, kernel or space of process ids, and this one, are not."""
    host, pid, kernel, began = steps.this_process().rsplit(":", 3)
    gone = str(2**22 + 1)  # beyond the greatest number of a process
    for living in (
        *(f"{host}:{pid}:{kernel}:{began}", f"{host}:{gone}", f"other:{gone}:{kernel}:{began}"),
        *(f"{host}:{gone}:0123456789ab:{began}", f"{host}:-1:{kernel}:{began}", f"{host}:x:{kernel}:{began}"),
        *(f"{host}:1:{kernel}:{steps._began(1)}", "a"),
    ):
        assert not steps.has_ended(living)
    assert steps.has_ended(f"{host}:{gone}:{kernel}:{began}")
    assert steps.has_ended(f"{host}:{pid}:{kernel}:{began}1")  # another one has its number now
