"""The same work by hand on the seed's own tables: its columns and indexes, no guard, nothing of this library.

The other groups compare the library with a driver that writes to the library's tables, so that indexes and guards
count for both. Here the driver's database has revision 0001 alone, and they count for the library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any

import orjson

from benchmarks.databases import Bare, sqlite_driver
from benchmarks.executions import USAGE
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.messages import CONTENT
from benchmarks.runs import CONTEXT, CONTEXT_TEXT
from lastlight_state import StateStore
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.ids import new_id
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import migrate
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.workflows import Gate, PhaseEntry, Trigger

_START = (
    "INSERT INTO executions (id, trigger_type, trigger_id, skill, repo, issue_number, started_at, workflow_run_id) "
    "VALUES (?, 'webhook', ?, 'triage:build', 'acme/widgets', 7, ?, ?)"
)
_FINISH = (
    "UPDATE executions SET finished_at = ?, success = {true}, duration_ms = 5, turns = 7, input_tokens = 812, "
    "output_tokens = 96, cost_usd = 0.0125, session_id = 's1' WHERE id = ?"
)
_READ = "SELECT phase_history, scratch FROM workflow_runs WHERE id = ?"
_WRITE = "UPDATE workflow_runs SET phase_history = ?, scratch = ?, current_phase = 'build', updated_at = ? WHERE id = ?"
_SAY = "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)"
_SAY_ONCE = (
    "INSERT INTO messaging_messages (session_id, role, content, timestamp, platform_message_id) "
    "VALUES (?, 'user', ?, ?, ?)"
)
_COUNT = "UPDATE messaging_sessions SET message_count = message_count + 1, last_activity_at = ? WHERE id = ?"
_MEET = (
    "INSERT INTO messaging_sessions (id, platform, channel_id, thread_id, user_id, created_at, last_activity_at) "
    "VALUES (?, 'slack', 'C1', 'T1', ?, ?, ?)"
)
_CREATE = (
    "INSERT INTO workflow_runs (id, workflow_name, trigger_id, repo, issue_number, current_phase, status, context, "
    "scratch, started_at, updated_at) VALUES (?, 'triage', ?, 'acme/widgets', 7, 'start', 'running', ?, ?, ?, ?)"
)
_ASK = (
    "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, requested_by, created_at) "
    "VALUES (?, ?, 'plan', 'Go ahead', 'ana', ?)"
)

Work = Callable[[], object]

_PLACE = Trigger(
    "https://github.com/acme/widgets/issues/7", type="webhook", repo="acme/widgets", issue_number=7, actor="ana"
)
_SCRATCH = '{"k":1}'
_ENTRY = {"phase": "build", "timestamp": "2026-02-03T12:34:56.789Z", "success": True, "summary": "done"}
#: Rows of each table when bytes are counted.
_ROWS = 10_000
#: Calls whose bytes of write-ahead log are counted.
_LOGGED = 500
#: Calls whose pages are counted: fewer than fill the log, which then begins anew. A frame is a page and its header.
_PAGED, _WAL_HEADER, _FRAME = 40, 32, 4096 + 24


@dataclass
class Twins:
    """The library on its database, and drivers on it and on one that has the seed's tables alone."""

    name: str
    store: StateStore
    ours: Any
    seed: Bare


@dataclass(frozen=True)
class Verb:
    """One piece of work, by the library and by hand, and the table whose indexes it fills."""

    name: str
    ours: Work
    by_hand: Work
    fills: str | None = None


def results(databases: Sequence[str]) -> Iterator[Result]:
    """Times of each verb; then bytes of the log on Postgres, and bytes of indexes, each beside the seed's."""
    for name in [*(["sqlite", "sqlite, full"] if "sqlite" in databases else []), "postgresql"]:
        if name != "postgresql" or name in databases:
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                yield from _measured(_twins(name, Path(folder), stack))


def _measured(twins: Twins) -> Iterator[Result]:
    made = [*_executions(twins), _phase(twins), *_messages(twins), _creation(twins), _approval(twins)]
    for verb in made:
        path = f"seed: {verb.name}"
        yield compare(path, twins.name, verb.ours, verb.by_hand, goal=goal(path, twins.name), calls=100, rounds=15)
    if twins.name == "sqlite":
        for verb in made:
            sides = ((twins.ours, verb.ours), (twins.seed.driver, verb.by_hand))
            pages = (_pages_of(driver, work) for driver, work in sides)
            yield _counted(f"seed: pages, {verb.name}", twins, *pages, unit="pages")
    if twins.name == "postgresql":
        for verb in made:
            yield _counted(
                f"seed: log bytes, {verb.name}", twins, _log_of(twins, verb.ours), _log_of(twins, verb.by_hand)
            )
    if twins.name != "sqlite, full":
        for verb in made:
            if verb.fills:
                yield _sizes(twins, verb, verb.fills)


def _counted(path: str, twins: Twins, ours: float, theirs: float, unit: str = "bytes") -> Result:
    """What was counted of either side, and their ratio."""
    ratio = round(ours / theirs, 2)
    return Result(path, twins.name, round(ours, 1), round(theirs, 1), ratio, ratio, goal(path, twins.name), unit)


def _pages_of(driver: Any, work: Work) -> float:
    """Pages that one call writes to the log of a SQLite file: a count that is the same in each run."""
    [log] = (Path(f"{row[2]}-wal") for row in driver.execute("PRAGMA database_list").fetchall())
    driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for _ in range(_PAGED):
        work()
    return (log.stat().st_size - _WAL_HEADER) / _FRAME / _PAGED


def _log_of(twins: Twins, work: Work) -> float:
    """Bytes of write-ahead log of one call; `_twins` turned the copies of whole pages off."""

    def place() -> Any:
        return twins.ours.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]

    before = place()
    for _ in range(_LOGGED):
        work()
    found = twins.ours.execute("SELECT pg_wal_lsn_diff(%s, %s)", (place(), before)).fetchone()
    return float(found[0]) / _LOGGED


def _sizes(twins: Twins, verb: Verb, table: str) -> Result:
    for work, driver in ((verb.ours, twins.ours), (verb.by_hand, twins.seed.driver)):
        for _ in range(_ROWS - driver.execute(f"SELECT count(*) FROM {table}").fetchone()[0]):
            work()
    sizes = [_index_bytes(twins, driver, table) / _ROWS for driver in (twins.ours, twins.seed.driver)]
    return _counted(f"seed: index bytes, {table}", twins, *sizes)


def _index_bytes(twins: Twins, driver: Any, table: str) -> float:
    if twins.name == "postgresql":
        driver.execute(f"REINDEX TABLE {table}")
        return float(driver.execute("SELECT pg_indexes_size(%s)", (table,)).fetchone()[0])
    driver.execute(f"REINDEX {table}")
    names = "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?"
    return float(driver.execute(f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({names})", (table,)).fetchone()[0])


def _executions(twins: Twins) -> Iterator[Verb]:
    executions, seed = twins.store.workflows.executions, twins.seed
    run_id = twins.store.workflows.runs.create("triage", trigger=_PLACE, phase="start").id
    ours: list[str] = []
    theirs: list[str] = []

    def started() -> tuple[object, ...]:
        theirs.append(new_id())
        return theirs[-1], _PLACE.id, seed.now(), run_id

    yield Verb(
        "start execution",
        lambda: ours.append(executions.start("triage:build", run_id=run_id).id),
        seed.unit((_START, started)),
        "executions",
    )
    true = "1" if seed.name == "sqlite" else "true"
    yield Verb(
        "finish execution",
        lambda: executions.finish(ours.pop(), "succeeded", usage=USAGE, session_id="s1"),
        seed.unit((_FINISH.format(true=true), lambda: (seed.now(), theirs.pop()))),
    )


def _phase(twins: Twins) -> Verb:
    runs, seed = twins.store.workflows.runs, twins.seed
    made = [runs.create("triage", trigger=_PLACE, phase="start", scratch={"k": 1}).id for _ in range(400)]
    ours, theirs = cycle(made), cycle(made)  # many runs, so that no history grows long
    for run_id in made:
        now = seed.now()
        seed.driver.execute(seed.sql(_CREATE), (run_id, _PLACE.id, "{}", _SCRATCH, now, now))
    execute, read, write = seed.driver.execute, seed.sql(_READ), seed.sql(_WRITE)
    begin = "BEGIN IMMEDIATE" if seed.name == "sqlite" else "BEGIN"
    lock = "" if seed.name == "sqlite" else " FOR NO KEY UPDATE"

    def by_hand() -> None:
        run_id = next(theirs)
        execute(begin)
        row = execute(read + lock, (run_id,)).fetchone()
        history, scratch = (orjson.loads(part) if isinstance(part, str) else part for part in row)
        texts = orjson.dumps([*history, _ENTRY]).decode(), orjson.dumps({**scratch, "n": 1}).decode()
        execute(write, (*texts, seed.now(), run_id))
        execute("COMMIT")

    return Verb(
        "phase with scratch",
        lambda: runs.append_phase(next(ours), PhaseEntry("build", True, "done"), scratch={"n": 1}),
        by_hand,
    )


def _messages(twins: Twins) -> Iterator[Verb]:
    messaging, seed = twins.store.messaging, twins.seed
    session = messaging.sessions.resume(ConversationKey("slack", "C1", "U1", "T1")).session.id
    seed.driver.execute(seed.sql(_MEET), (session, "U1", seed.now(), seed.now()))
    numbers = count()
    yield Verb(
        "chat message with an id",
        lambda: messaging.messages.append(
            session, role="user", content=CONTENT, platform_message_id=f"ours-{next(numbers)}"
        ),
        seed.unit(
            (_SAY_ONCE, lambda: (session, CONTENT, seed.now(), f"theirs-{next(numbers)}")),
            (_COUNT, lambda: (seed.now(), session)),
        ),
    )
    yield Verb(
        "chat message",
        lambda: messaging.messages.append(session, role="user", content=CONTENT),
        seed.unit((_SAY, lambda: (session, CONTENT, seed.now())), (_COUNT, lambda: (seed.now(), session))),
        "messaging_messages",
    )


def _creation(twins: Twins) -> Verb:
    runs, seed = twins.store.workflows.runs, twins.seed

    def row() -> tuple[object, ...]:
        now = seed.now()
        return new_id(), _PLACE.id, CONTEXT_TEXT, _SCRATCH, now, now

    return Verb(
        "create run",
        lambda: runs.create("triage", trigger=_PLACE, phase="start", context=CONTEXT, scratch={"k": 1}),
        seed.unit((_CREATE, row)),
        "workflow_runs",
    )


def _approval(twins: Twins) -> Verb:
    """The seed asks with one INSERT, and no run is paused by it; here it is, so read the bytes."""
    workflows, seed = twins.store.workflows, twins.seed
    made: list[str] = []

    def ask() -> None:
        made.append(workflows.runs.create("triage", trigger=_PLACE, phase="start").id)
        workflows.approvals.pause(made[-1], Gate("plan", "Go ahead", requested_by="ana"))

    return Verb(
        "create run and pause at a gate",
        ask,
        seed.unit(
            (_CREATE, lambda: (new_id(), _PLACE.id, "{}", _SCRATCH, seed.now(), seed.now())),
            (_ASK, lambda: (new_id(), new_id(), seed.now())),
        ),
        "workflow_approvals",
    )


def _twins(name: str, folder: Path, stack: ExitStack) -> Twins:
    if name == "postgresql":
        from lastlight_state.testing.postgres import connect  # noqa: PLC0415 - an optional library

        server = stack.enter_context(ThrowawayPostgres.start())
        url, seed_url = (stack.enter_context(server.database()) for _ in range(2))
        _make_seed(seed_url)
        ours, seed = (stack.enter_context(connect(one)) for one in (url, seed_url))
        for setting in ("full_page_writes = off", "autovacuum = off"):
            ours.execute(f"ALTER SYSTEM SET {setting}")
        ours.execute("SELECT pg_reload_conf()")
        store = stack.enter_context(StateStore.open(url, state_dir=folder, migrate=True))
        return Twins(name, store, ours, Bare(name, seed))
    durability = "full" if name == "sqlite, full" else "normal"
    path, seed_path = str(folder / "ours.db"), str(folder / "seed.db")
    _make_seed(seed_path)
    store = stack.enter_context(StateStore.open(path, state_dir=folder, durability=durability))
    ours, seed = (sqlite_driver(one, durability) for one in (path, seed_path))
    stack.callback(ours.close)
    stack.callback(seed.close)
    return Twins(name, store, ours, Bare("sqlite", seed))


def _make_seed(url: str) -> None:
    backend = open_backend(url, Options())
    try:
        migrate(backend, "0001")
    finally:
        backend.close()
