"""Starts workers, and kills the one whose agent waits for a tool that will never answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from lastlight_state import codec
from lastlight_state.errors import MisuseError
from lastlight_state.settings import DATABASE_FILE, PREFIX, Settings

WORKER = "lastlight_state.cli.commands.demo.worker"

Note = Callable[[str], None]


def work(settings: Settings, run_id: str, note: Note) -> bool:
    """Let one worker process drive the run until it stops by itself (True), or is killed (False)."""
    command = [sys.executable, "-m", WORKER, run_id]
    with subprocess.Popen(  # noqa: S603 our own interpreter and our own module
        command,
        env=environment(settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; we end the worker
    ) as worker:
        try:
            note(f"worker {worker.pid} started")
            killed = _listen(worker, note)
        except BaseException:
            worker.kill()
            raise
    if worker.returncode != (-signal.SIGKILL if killed else 0):
        raise MisuseError(f"worker {worker.pid} ended with {worker.returncode}")
    return not killed


def environment(settings: Settings) -> dict[str, str]:
    """Where a worker finds the database. A URL may hold a password, so it is in no command line."""
    given = {
        "URL": settings.url or str(settings.state_dir / DATABASE_FILE),
        "STATE_DIR": str(settings.state_dir),
        "SCHEMA": settings.schema_name,
        "AGENT_LOG_DIR": settings.agent_log_dir,
    }
    inherited = {name: text for name, text in os.environ.items() if name != PREFIX + "URL_FILE"}
    return inherited | {PREFIX + name: str(value) for name, value in given.items() if value is not None}


def _listen(worker: subprocess.Popen[str], note: Note) -> bool:
    """Pass on what the worker says. When it is stuck, kill it: no handler runs, nothing is flushed or closed."""
    for line in worker.stdout or ():
        said = codec.load_line(line.encode())
        if "note" in said:
            note(said["note"])
            continue
        note(f"{said['stuck']}: kill -9 {worker.pid}")
        os.kill(worker.pid, signal.SIGKILL)
        return True
    return False
