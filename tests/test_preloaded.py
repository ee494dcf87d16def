"""Programs of tests that are forked from a process with the library loaded, beside those that are started anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.preloaded import Program, run_program

TELLS = """
import os, sys, warnings
print(sys.argv, os.getcwd(), os.environ.get("WORD"), __name__, sys.path[0], input())
print([one[0] for one in warnings.filters][:1], sorted(os.listdir("/proc/self/fd"))[:4], os.getsid(0) == os.getpid())
print(os.getpgid(0) == os.getpid())
sys.exit("over")
"""


@pytest.mark.parametrize("started_as", ["text", "file", "module"])
@pytest.mark.parametrize(
    "options",
    [{}, {"start_new_session": True}, {"process_group": 0}, {"env": {**os.environ, "WORD": "1"}}],
    ids=["plain", "session", "group", "variable"],
)
def test_a_forked_program_tells_what_one_that_is_started_anew_tells(
    tmp_path: Path, started_as: str, options: dict[str, Any]
) -> None:
    """house H-133."""
    (tmp_path / "tells.py").write_text(TELLS)
    words = {"text": ["-c", TELLS], "file": [str(tmp_path / "tells.py")], "module": ["-m", "tells"]}[started_as]
    command = [sys.executable, "-W", "error", *words, "a", "b"]
    told = [
        run(command, input="hello", cwd=tmp_path, capture_output=True, text=True, check=False, **options)
        for run in (subprocess.run, run_program)
    ]
    assert (told[0].returncode, told[0].stderr) == (1, "over\n")
    assert (told[1].returncode, told[1].stdout, told[1].stderr) == (1, told[0].stdout, "over\n")


def test_a_forked_program_is_a_child_of_the_test_and_has_the_library() -> None:
    """house H-133."""
    code = "import os, sys; print('sqlalchemy' in sys.modules, input(), os.getppid(), flush=True); input()"
    with Program([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("and\n")
        program.stdin.flush()
        assert program.stdout.readline() == f"{sys.platform == 'linux'} and {os.getpid()}\n"
        program.kill()
        assert program.wait(30) == -signal.SIGKILL
