"""The hourly import beside a program that goes on writing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import living_source
from support.maintenance.living_source import APPEND
from support.maintenance.named_sources import SOURCES
from support.processes import started

#: A page of what is read here.
_MOST = 500


@pytest.mark.parametrize("rounds", [pytest.param(4, id="4"), pytest.param(60, id="60", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", APPEND)
def test_imports_beside_a_program_that_writes_lose_and_double_nothing(
    store: Any, tmp_path: Path, kind: str, rounds: int
) -> None:
    """maintenance OP-36: each brings a beginning of what the program says, and the last one all of it."""
    named, imports = SOURCES[kind], store.maintenance.imports
    source = named.write(tmp_path, "said", 1)
    imports.run(source)
    command = [sys.executable, living_source.__file__, kind, str(tmp_path), str(_MOST)]
    environment = {**os.environ, "PYTHONPATH": str(Path(living_source.__file__).parents[2])}
    with started(command, stdin=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        for _ in range(rounds):
            done = imports.run(source)
            assert {one.code for one in done.failures} <= {"damaged_source"}
            here = named.read(store, None)
            assert here == [f"said {i}" for i in range(len(here))]
        said, problem = program.communicate(input="", timeout=120)
    assert problem == ""
    done = imports.run(source)
    assert (done.failures, done.conflicts) == ((), ())
    assert imports.run(source).units == {"unchanged": 1}
    assert named.read(store, None) == [f"said {i}" for i in range(int(said))]
