"""Every public call on a database that somebody else holds, and how long each takes to give up."""

from __future__ import annotations

import inspect
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from support.hostile import methods, taken
from support.hostile_rows import KNOWN

from lastlight_state import Settings, StateStore
from lastlight_state.db.repository import Repository
from lastlight_state.errors import StateError
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

#: So short that every call can be waited for. None of them says how fast a call is: the machine may be busy.
SHORT = Settings(busy_timeout=0.1, lock_timeout=0.1, retry_seconds=0.2, queue_timeout=0.5, pool_timeout=2.0)
#: What a busy machine takes for itself, in seconds.
WORK_SECONDS = 1.0
#: Pauses between six repetitions, each a quarter longer than usual.
PAUSES_SECONDS = (0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1.6) * 1.25


@dataclass(frozen=True)
class Timed:
    """What came of a call, and after how many seconds."""

    path: str
    outcome: str
    seconds: float


def promised(settings: Settings, lock_seconds: float | None) -> float:
    """For how long a call waits for locks, by the rule of docs/promises.md."""
    waits = lock_seconds or 0.0
    unset = 7 * waits + PAUSES_SECONDS
    return unset if settings.retry_seconds is None else min(unset, 2 * waits + settings.retry_seconds)


def late(found: Sequence[Timed], promise: float) -> list[Timed]:
    """The calls that took longer than a quarter more than promised, or raised another error than ours."""
    return [one for one in found if one.outcome.startswith("!") or one.seconds > promise * 1.25 + WORK_SECONDS]


def verbs(store: StateStore) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every public method of every repository, as a function of the store, with plausible arguments."""
    for path, method in methods(store):
        yield path, partial(_made, path, *_arguments(method))


def mailbox_verbs(boxes: Mailboxes) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every public call on the mailbox ``g/held``, from both sides, as a function of the face."""
    for side, opened in (("host", boxes.host("g", "held")), ("agent", boxes.agent("g", "held"))):
        for name in ("status", "verify"):
            yield f"{side}.{name}", partial(_on_side, side, name, [], {})
        for room in dir(type(opened)):
            repository = None if room.startswith("_") else getattr(opened, room, None)
            if isinstance(repository, Repository):
                for name, method in inspect.getmembers(type(repository), inspect.isfunction):
                    if not name.startswith("_"):
                        path = f"{room}.{name}"
                        yield f"{side}.{path}", partial(_on_side, side, path, *_arguments(method))
    yield "host", lambda face: face.host("g", "held")
    yield "agent", lambda face: face.agent("g", "held")
    yield "ensure", lambda face: face.ensure("g", "held")
    yield "list", lambda face: face.list()
    yield "prune", lambda face: face.prune("g", "held")
    yield "sweep", lambda face: face.sweep([("g", "held"), ("g", "free")], lambda *_: None)


def timed(targets: Sequence[Any], asked: Sequence[tuple[str, Callable[[Any], Any]]], promise: float) -> list[Timed]:
    """What came of each call; as many at a time as there are stores to make them on.

    A call's own work is not counted, because it may take seconds on a busy machine. A call that was late is made again
    alone, three times at most: the server's work is not told from waiting for a lock, but varies.
    """
    free: SimpleQueue[Any] = SimpleQueue()
    for target in targets:
        free.put(target)

    def one(path: str, call: Callable[[Any], Any]) -> Timed:
        target, began, at_work = free.get(), time.monotonic(), worked()
        try:
            call(target)
            outcome = "made"
        except StateError as error:
            outcome = type(error).__name__
        except Exception as error:  # noqa: BLE001 - what the test is for
            outcome = f"!{error!r}"
        finally:
            took = time.monotonic() - began - (worked() - at_work)
            free.put(target)
        return Timed(path, outcome, took)

    with ThreadPoolExecutor(len(targets)) as threads:
        found = list(threads.map(lambda given: one(*given), asked))
    for at, given in enumerate(asked):
        for _ in range(3):
            if late([found[at]], promise):
                found[at] = one(*given)
    return found


def worked() -> float:
    """Return the seconds in which this thread used a processor or waited for one, as far as the system tells."""
    try:
        used, waited = Path("/proc/thread-self/schedstat").read_text("ascii").split()[:2]
    except FileNotFoundError:
        return 0.0
    return (int(used) + int(waited)) / 1e9


@contextmanager
def held_file(path: Path) -> Iterator[None]:
    """Hold a SQLite file exclusively."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def held_tables(database: Database) -> Iterator[None]:
    """Hold every table of ours on Postgres exclusively."""
    with closing(database.raw()) as holder:
        names = ", ".join(table.name for table in METADATA.sorted_tables)
        holder.execute("BEGIN")
        holder.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def held(database: Database, store: StateStore) -> Iterator[None]:
    """The whole database, held exclusively."""
    with held_tables(database) if database.name == "postgresql" else held_file(store.backend.files[0]):
        yield


def table(found: Sequence[Timed], promise: float) -> str:
    """The slowest call of each repository, for people."""
    groups: dict[str, list[Timed]] = {}
    for one in found:
        groups.setdefault(one.path.rpartition(".")[0] or one.path, []).append(one)
    lines = [f"{'calls of':40} {'how many':>8} {'worst':>8} {'promise':>8}  slowest"]
    for name, ones in sorted(groups.items()):
        worst = max(ones, key=lambda one: one.seconds)
        lines.append(
            f"{name:40} {len(ones):8} {worst.seconds:8.2f} {promise:8.2f}  {worst.path.rpartition('.')[2]}"
            f" ({worst.outcome})"
        )
    return "\n".join(lines)


def _arguments(method: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Plausible arguments. What listens for something else than a lock does so for no time at all."""
    parameters = inspect.signature(method).parameters
    named = taken(method, KNOWN)[1] | {name: 0 for name in ("timeout", "idle_timeout", "wait") if name in parameters}
    listed = [name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL]
    return [one for name in listed for one in [*named.pop(name, ())]], named


def _on_side(side: str, path: str, given: Sequence[Any], named: Mapping[str, Any], face: Any) -> Any:
    return _made(path, given, named, getattr(face, side)("g", "held"))


def _made(path: str, given: Sequence[Any], named: Mapping[str, Any], owner: Any) -> Any:
    """What a method gives, all of it."""
    for name in path.split("."):
        owner = getattr(owner, name)
    made = owner(*given, **named)
    return [*made] if inspect.isgenerator(made) else made
