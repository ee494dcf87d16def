"""``python -m benchmarks.engines``: what a version of SQLite, its driver and who makes its checkpoints cost.

One process for each way of having SQLite, with a file of its own. They take turns, so that each meets the same machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from statistics import mean, median

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import checkpoints, dbapi
from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import Trigger

#: The ways, by name: the driver, and whether checkpoints are made under the writers' lock. The first is compared with.
WAYS = {
    "sqlite3, SQLite's own checkpoints": ("sqlite3", False),
    "sqlite3, under the writers' lock": ("sqlite3", True),
    "pysqlite3": ("pysqlite3", False),
}
ROUNDS, CALLS = 20, 250
CONTENT = "The build is green again, and the colour is back. " * 20


def main() -> None:
    """Let the ways take turns, and print a table."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ways = {name: stack.enter_context(_begun(folder, *way)) for name, way in WAYS.items()}
        versions = {name: _answer(way) for name, way in ways.items()}
        spent: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
        for number in range(ROUNDS):
            for name, way in list(ways.items())[:: 1 if number % 2 else -1]:
                assert way.stdin is not None
                way.stdin.write("\n")
                way.stdin.flush()
                for verb, seconds in json.loads(_answer(way)).items():
                    spent[name].setdefault(verb, []).extend(seconds)
        for way in ways.values():
            way.communicate()
    for name, version in versions.items():
        sys.stdout.write(f"{name}: SQLite {version.strip()}\n")
    sys.stdout.writelines(f"{line}\n" for line in _table(spent))


def _begun(folder: str, driver: str, is_locked: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.engines", f"{folder}/{driver}-{is_locked}.db", str(is_locked)]
    pipe = subprocess.PIPE
    return subprocess.Popen(  # noqa: S603
        command, env={**os.environ, dbapi.VARIABLE: driver}, stdin=pipe, stdout=pipe, text=True
    )


def _answer(way: subprocess.Popen[str]) -> str:
    assert way.stdout is not None
    return way.stdout.readline()


def _table(spent: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    yield "| verb | way | median µs | mean | 99.9 % | longest ms | ratio of medians | of means |"
    yield "|---|---|---|---|---|---|---|---|"
    first = spent[next(iter(WAYS))]
    for verb, base in first.items():
        for name, verbs in spent.items():
            seconds = sorted(verbs[verb])
            figures = [1e6 * median(seconds), 1e6 * mean(seconds), 1e6 * seconds[int(len(seconds) * 0.999)]]
            told = [f"{figure:.0f}" for figure in figures] + [f"{1e3 * seconds[-1]:.1f}"]
            ratios = [f"{median(seconds) / median(base):.2f}", f"{mean(seconds) / mean(base):.2f}"]
            yield f"| {' | '.join([verb, name, *told, *ratios])} |"


def _serve(path: str, is_locked: bool) -> None:
    """Measure a round of each verb for each line that comes."""
    checkpoints.NEEDED = is_locked
    with StateStore.open(path, state_dir=str(Path(path).parent)) as store:
        verbs = _verbs(store)
        sys.stdout.write(f"{dbapi.sqlite3.sqlite_version}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            sys.stdout.write(f"{json.dumps({verb: _timed(call) for verb, call in verbs.items()})}\n")
            sys.stdout.flush()


def _verbs(store: StateStore) -> dict[str, Callable[[], object]]:
    runs, messages, trigger = store.workflows.runs, store.messaging.messages, Trigger("t")
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1", "T1")).session.id
    run_id = runs.create("w", trigger=trigger, phase="p").id
    claim = store.workflows.claims.try_take(run_id, owner="bench", lease=timedelta(minutes=10))
    assert claim is not None
    return {
        "messages.append": lambda: messages.append(session, role="user", content=CONTENT),
        "runs.create": lambda: runs.create("w", trigger=trigger, phase="p"),
        "claims.heartbeat": lambda: store.workflows.claims.heartbeat(claim),
        "runs.get": lambda: runs.get(run_id),
        "messages.history": lambda: messages.history(session, limit=20),
    }


def _timed(call: Callable[[], object]) -> list[float]:
    spent = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return spent


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _serve(sys.argv[1], sys.argv[2] == "True")
    else:
        main()
