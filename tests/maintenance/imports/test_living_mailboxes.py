"""Imports of a mailbox whose host and agent go on writing: what is here is a beginning of both files, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.mailbox.files import sql
from support.maintenance import living_source
from support.maintenance.living_source import MAILBOX
from support.maintenance.mailbox_trees import KEY, answer, attach, say, write_session
from support.processes import started

#: The most messages of each program, and the seconds between two of them.
_MOST, _PAUSE = 3_000, 0.2
_UNIT = "/".join(KEY)


def _source(root: Path) -> Path:
    folder = write_session(root)
    for name, table in (("inbound.db", "messages_in"), ("outbound.db", "messages_out")):
        sql(folder / name, f"DELETE FROM {table}")
    attach(folder, "inbox/m-0/a.txt", b"said")
    say(folder, "m-0", 2)
    answer(folder, "a-0", 3)
    return root


def _program(stack: ExitStack, name: str, root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, living_source.__file__, name, str(root), str(_MOST), str(_PAUSE)]
    environment = {**os.environ, "PYTHONPATH": str(Path(living_source.__file__).parents[2])}
    program: subprocess.Popen[str] = stack.enter_context(started(command, stdin=subprocess.PIPE, env=environment))
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    return program


def _here(store: Any) -> list[list[str]]:
    """The ids of the messages of both files, as far as they are here, each received one with its attachment."""
    folder = store.mailbox.root.joinpath(*KEY)
    if not folder.is_dir():
        return [[], []]
    asked = (("inbound.db", "messages_in"), ("outbound.db", "messages_out"))
    found = [[one for (one,) in sql(folder / name, f"SELECT id FROM {table} ORDER BY seq")] for name, table in asked]
    assert all((folder / "inbox" / one / "a.txt").read_bytes() == b"said" for one in found[0])
    return found


def _wanted(received: int, answered: int) -> list[list[str]]:
    return [[f"m-{i}" for i in range(received)], [f"a-{i}" for i in range(answered)]]


@pytest.mark.parametrize("rounds", [pytest.param(6, id="6"), pytest.param(200, id="200", marks=pytest.mark.soak)])
def test_imports_of_a_mailbox_that_is_written_lose_and_double_nothing(store: Any, tmp_path: Path, rounds: int) -> None:
    """maintenance OP-36, OP-87: a copy stays as it is while its source goes on; asked for anew, it is whole."""
    imports, source = store.maintenance.imports, _source(tmp_path / "program")
    with ExitStack() as stack:
        programs = [_program(stack, name, source) for name in MAILBOX]
        for number in range(rounds):
            if number % 2 and _here(store)[0]:  # copied anew
                store.mailbox.prune(*KEY, dry_run=False)
            before, done = _here(store), imports.run(source, revive=True)
            assert {one.code for one in done.failures} <= {"damaged_source", "already_exists"}
            here = _here(store)
            assert here == _wanted(len(here[0]), len(here[1]))
            assert before in ([[], []], here)
        said = []
        for program in programs:
            told, problem = program.communicate(input="", timeout=120)
            assert problem == ""
            said.append(int(told))
    if _here(store)[0]:
        store.mailbox.prune(*KEY, dry_run=False)
    assert imports.run(source, revive=[_UNIT]).units == {"imported": 1}
    assert imports.run(source).units == {"unchanged": 1}
    assert _here(store) == _wanted(*said)
