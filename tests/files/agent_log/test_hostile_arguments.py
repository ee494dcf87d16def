"""What nobody would expect, given to the readers of agent sessions."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from support.agent_log.logs import SESSION, put
from support.hostile import HOSTILE

from lastlight_state.codec import dump_line
from lastlight_state.errors import StateError
from lastlight_state.files.agent_log import AgentLog


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.soak)])
def test_hostile_arguments_of_readers_are_errors_of_the_library(log: AgentLog, every: int) -> None:
    """agent-log L-67: of every public method that reads, one argument at a time."""
    put(log, dump_line({"type": "user", "message": {"role": "user", "content": "x"}}), session_id=SESSION["id"])
    values = HOSTILE[::every]
    over = threading.Event()
    over.set()
    known = {"session_id": SESSION["id"], "sha256": "0" * 64, "text": "x", "files": [], "stop": over}
    methods = [
        (path, getattr(face, name))
        for path, face in {"sessions": log.sessions, "reader": log.reader, "raw": log.raw, "repair": log.repair}.items()
        for name, _ in inspect.getmembers(type(face), inspect.isfunction)
        if not name.startswith("_")
    ]
    assert len(methods) == 18
    wrong = {(path, method.__name__, *found) for path, method in methods for found in attacked(method, known, values)}
    assert not wrong, sorted(wrong)


def attacked(
    method: Callable[..., Any], known: dict[str, Any], values: Sequence[Any]
) -> Iterator[tuple[str, str, str]]:
    """The argument, and what the method raised for it that is no error of the library."""
    names = inspect.signature(method).parameters
    for attacked_name in names:
        for value in values:
            try:
                made = method(**{name: known[name] for name in names if name in known} | {attacked_name: value})
                if inspect.isgenerator(made):
                    list(islice(made, 3 if attacked_name != "stop" else 0))
            except StateError:
                pass
            except Exception as error:  # noqa: BLE001 - what the test is for
                yield attacked_name, type(value).__name__, type(error).__name__
