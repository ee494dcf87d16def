"""Runs one Postgres server, and ends it when its owner ends. A separate script that uses only the standard library.

Its argument is the plan, as JSON. On standard output it prints ``ready`` once the server accepts connections, or else
the reason why it never will. Standard input is a pipe from the owner. If one byte arrives, or the pipe ends because the
owner has ended, the server is stopped at once and its directory is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START_SECONDS = 60
STOP_SECONDS = 10

INITDB = (
    *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"),
    *("--no-sync", "--no-instructions"),
)

FOLLOWING = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")


class Refused(Exception):
    """The server cannot run. The error's text states the reason."""


class Watchdog:
    """The server of a plan: ``folder``, ``binaries``, ``copies``, ``user`` (uid and gid, or null), ``settings``.

    ``primary`` is the libpq address of the server that this one replicates, or null.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.folder = Path(plan["folder"])
        self.binaries = Path(plan["binaries"])
        self.copies = plan["copies"]
        self.settings = plan["settings"]
        self.primary = plan["primary"]
        self.identity: dict[str, Any] = {}
        if plan["user"]:
            self.identity = {"user": plan["user"][0], "group": plan["user"][1], "extra_groups": []}
        self.server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create the cluster and start its server inside ``folder``. Return once the server accepts connections."""
        for source, target in self.copies:
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
        (self.folder / "s").mkdir()
        self._hand_over()
        if self.primary is None:
            self._run("initdb", f"--pgdata={self.folder / 'data'}", *INITDB)
        else:
            self._run("pg_basebackup", f"--pgdata={self.folder / 'data'}", f"--dbname={self.primary}", *FOLLOWING)
        with (self.folder / "log").open("ab") as log:
            self.server = subprocess.Popen(
                [self._program("postgres"), "-D", "data", "-k", str(self.folder / "s"), *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **self.identity,
            )
        self._await(self.server)

    def stop(self) -> None:
        """Kill the server, because none of its data need be kept, and remove its directory."""
        if self.server is not None:
            self.server.send_signal(signal.SIGQUIT)
            try:
                self.server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _program(self, name: str) -> str:
        return str(self.binaries / name)

    def _options(self) -> list[str]:
        return [word for setting in self.settings for word in ("-c", setting)]

    def _hand_over(self) -> None:
        if self.identity:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self.identity["user"], self.identity["group"], follow_symlinks=False)

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._program(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False, **self.identity)
        if done.returncode:
            raise Refused(f"{program}: {done.stderr.strip() or done.stdout.strip()}")

    def _await(self, server: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if server.poll() is not None or time.monotonic() > end:
                raise Refused("postgres: " + (self.folder / "log").read_text(errors="replace").strip())
            time.sleep(0.005)

    def _is_ready(self) -> bool:
        try:
            return (self.folder / "data" / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
        except (OSError, IndexError):
            return False


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the server until the owner sends a byte or ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watchdog = Watchdog(json.loads(sys.argv[1]))
    try:
        watchdog.start()
        _say("ready")
        sys.stdin.buffer.read(1)
    except (Refused, OSError) as error:
        _say(str(error))
    finally:
        watchdog.stop()


if __name__ == "__main__":
    main()
