"""Processes that migrate, for tests of races and of sudden ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")


class Workers:
    """Forks processes from one that has imported everything: starting each anew would cost a second."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        command, pipe = [sys.executable, "-P", str(WORKER)], subprocess.PIPE
        self._leader = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, bufsize=1)

    def migrate(self, url: str, *, members: int = 1, die_at: int = 0) -> list[Any]:
        """What each of so many processes applied, all let go together; None for one that was killed.

        With ``die_at`` each is killed as by ``kill -9`` when it is about to execute that many statements.
        """
        assert self._leader.stdin
        assert self._leader.stdout
        self._leader.stdin.write(json.dumps({"url": url, "members": members, "die_at": die_at}) + "\n")
        told: list[Any] = json.loads(self._leader.stdout.readline())
        return told

    def close(self) -> None:
        self._leader.communicate(timeout=60)
