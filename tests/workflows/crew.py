"""Several processes that wait for work, started once because starting costs more than what tests let them do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SIZE = 4


class Crew:
    """Four processes of their own. A script finds its ``arguments``, calls ``ready()`` and leaves a ``result``."""

    def __init__(self) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _MEMBER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            for _ in range(SIZE)
        ]

    def race(self, script: str, *arguments: Sequence[Any]) -> list[Any]:
        """Run the script in one process for each list of arguments, let go together from ``ready()``; their results."""
        members = self._processes[: len(arguments)]
        for member, given in zip(members, arguments, strict=True):
            _tell(member, json.dumps({"script": script, "arguments": list(given)}))
        for member in members:
            assert _hear(member) == "ready"
        for member in members:
            _tell(member, "go")
        return [_hear(member) for member in members]

    def close(self) -> None:
        """Let all processes end."""
        for member in self._processes:
            member.communicate(timeout=60)


def _tell(member: subprocess.Popen[str], line: str) -> None:
    assert member.stdin is not None
    member.stdin.write(line + "\n")


def _hear(member: subprocess.Popen[str]) -> Any:
    assert member.stdout is not None
    told = json.loads(member.stdout.readline())
    assert "error" not in told, told["error"]
    return told["result"]


_MEMBER = """
import json, sys, traceback

def tell(**said):
    print(json.dumps(said), flush=True)

def ready():
    tell(result="ready")
    sys.stdin.readline()

for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    scope = {"ready": ready, "arguments": order["arguments"]}
    try:
        exec(order["script"], scope)
        tell(result=scope["result"])
    except BaseException:
        tell(error=traceback.format_exc())
"""
