"""Several processes at once, forked from one that has imported everything: starting each anew would cost a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


class Crew:
    """Runs scripts in processes of their own. A script finds its ``arguments`` and leaves a ``result``."""

    def __init__(self) -> None:
        self._leader = subprocess.Popen(
            [sys.executable, "-c", _LEADER],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def race(self, script: str, *arguments: Sequence[Any]) -> list[Any]:
        """Run the script in one process for each list of arguments, all let go together from its ``ready()``."""
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        self._leader.stdin.write(json.dumps({"script": script, "members": [list(given) for given in arguments]}) + "\n")
        told = json.loads(self._leader.stdout.readline())
        failed = [each["error"] for each in told if "error" in each]
        assert not failed, failed
        return [each["result"] for each in told]

    def close(self) -> None:
        """Let the leader end."""
        self._leader.communicate(timeout=60)


_LEADER = """
import json, os, sys, traceback
from support.loading import load
load("db", "backends", "workflows", "schedules", "messaging", "outputs")

class Member:
    def __init__(self, script, arguments):
        hear, tell = os.pipe()
        wait, release = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(hear), os.close(release)
            run(script, arguments, os.fdopen(tell, "w", buffering=1), os.fdopen(wait))
            os._exit(0)
        os.close(tell), os.close(wait)
        self._hear, self._release = os.fdopen(hear), os.fdopen(release, "w")

    def hear(self):
        line = self._hear.readline()
        return json.loads(line) if line else {"error": "the process has ended"}

    def go(self):
        try:
            with self._release as release:
                print("go", file=release)  # a line, not the end of the pipe: later members hold copies of this end
        except BrokenPipeError:
            pass

    def end(self):
        self._hear.close()
        os.waitpid(self.pid, 0)

def run(script, arguments, tell, wait):
    def ready():
        print(json.dumps({"result": "ready"}), file=tell)
        wait.readline()
    scope = {"ready": ready, "arguments": arguments}
    try:
        exec(script, scope)
        said = {"result": scope["result"]}
    except BaseException:
        said = {"error": traceback.format_exc()}
    print(json.dumps(said), file=tell)

def race(script, members):
    crew = [Member(script, arguments) for arguments in members]
    begun = [member.hear() for member in crew]
    for member in crew:
        member.go()
    told = [member.hear() if said == {"result": "ready"} else said for member, said in zip(crew, begun)]
    for member in crew:
        member.end()
    return told

for line in iter(sys.stdin.readline, ""):
    print(json.dumps(race(**json.loads(line))), flush=True)
"""
