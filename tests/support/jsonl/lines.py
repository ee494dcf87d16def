"""Records and whole files to write and read back, and children that write them."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lastlight_state.codec import dump_line
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.reader import Line, LineKind, LineReader
from lastlight_state.files.jsonl.writer import LineWriter

#: For processes that their parent must see stop or end by a signal.
SPAWN = multiprocessing.get_context("spawn")
#: Forks processes from one that has loaded this module: starting each anew would cost a second.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


def record(n: int, *, text: str = "", writer: str = "a") -> dict[str, Any]:
    """Return a record as an agent's log has them, with a nested object that must never pass for one."""
    return {
        "type": "user",
        "message": {"role": "user", "content": text},
        "writer": writer,
        "n": n,
        "timestamp": "2026-02-03T12:34:56.789Z",
        "sessionId": "s-1",
    }


def is_record(value: dict[str, Any]) -> bool:
    """Return the test that an owner of line files makes on what is recovered."""
    return all(isinstance(value.get(key), str) for key in ("type", "timestamp", "sessionId"))


KIND = LineKind(Line, is_record)


class Reading:
    """Everything that a reader has to say about a file."""

    def __init__(self, reader: LineReader[Line]) -> None:
        self.lines: list[Line] = list(reader.lines())
        last = reader.tail()
        self.lines += [last] if last else []
        self.numbers = [line.value.get("n") for line in self.lines]
        self.issues = reader.issues
        self.reasons = [issue.reason for issue in reader.issues]
        self.torn_tail = reader.torn_tail


def read(path: Path, **options: Any) -> Reading:
    """Return the whole file."""
    with opened(path) as descriptor:
        return Reading(LineReader(descriptor, path, KIND, **options))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Give a descriptor to read from."""
    descriptor = files.open_to_read(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType | type, *names: str) -> list[str]:
    """Note the names of the calls that are made from now on, in order. They are made all the same."""
    calls: list[str] = []

    def count(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*arguments, **options)

        return call

    for name in names:
        monkeypatch.setattr(module, name, count(name, getattr(module, name)))
    return calls


def child(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """Return a started process that does the work."""
    process = FORKS.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def append_until_killed(path: Path, acknowledged: Path, writer: str, size: int, keeps_lock: bool = False) -> None:
    """Append records for ever, however long others hold the file, and note the number of each that returned.

    Notes are 16 bytes each, so that none lies on two pages: a kill can cut a write to a file between two pages.
    """
    notes = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    lines = LineWriter(path, sync="os", lock_timeout=300, keeps_lock=keeps_lock)
    number = 0
    while True:
        lines.append([dump_line(record(number, text="x" * size, writer=writer))])
        os.write(notes, b"%15d\n" % number)
        number += 1


def append_many(path: Path, writer: str, count: int, seed: int) -> None:
    """Append records of many sizes, now and then of 70 KB."""
    sizes = random.Random(seed)
    with LineWriter(path, sync="os") as lines:
        for number in range(count):
            size = 70_000 if sizes.random() < 0.1 else sizes.randrange(2_000)
            lines.append([dump_line(record(number, text="é" * (size // 2), writer=writer))])


def append_large(path: Path, writer: str, count: int) -> None:
    """Append records of 70 KB."""
    with LineWriter(path, sync="os") as lines:
        for number in range(count):
            lines.append([dump_line(record(number, text="x" * 70_000, writer=writer))])
