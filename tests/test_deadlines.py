"""Calls on files and tables that somebody else holds exclusively: each ends within what is promised."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support import deadlines
from support.deadlines import SHORT, Timed, held, held_file, late, promised, timed
from support.each import with_each
from support.faults.interrupts import Interrupted
from support.hostile_rows import fill
from support.tracing import traced

from lastlight_state import Settings, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.backends import waiting
from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.testing import Database

#: How many calls wait at a time.
AT_ONCE = 24
SQLITE = promised(SHORT, SHORT.busy_timeout)
POSTGRES = promised(SHORT, SHORT.lock_timeout)
#: For work that is more than one call, in seconds. Without the deadline it takes longer.
UNHURRIED = 5.0


def every_verb(database: Database, settings: Settings, promise: float, at_once: int = AT_ONCE) -> list[Timed]:
    """What came of every call while the whole database was held."""
    with ExitStack() as stack:
        stores = [stack.enter_context(database.open(settings=settings)) for _ in range(at_once)]
        fill(stores[0])
        asked = list(deadlines.verbs(stores[0]))
        for store in stores:
            store.workflows.runs.list()  # so that each has a connection already
        stack.enter_context(held(database, stores[0]))
        return timed(stores, asked, promise)


@pytest.mark.slow
@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_no_call_on_a_held_file_waits_longer_than_promised(sqlite_database: Database, journal_mode: Any) -> None:
    """backends B-90: every public method of every repository."""
    found = every_verb(sqlite_database, SHORT.model_copy(update={"journal_mode": journal_mode}), SQLITE)
    assert not late(found, SQLITE), deadlines.table(late(found, SQLITE), SQLITE)
    assert sum(one.outcome == "BackendBusy" for one in found) > 100


@pytest.mark.slow
def test_no_call_on_held_tables_waits_longer_than_promised(postgres_database: Database) -> None:
    """backends B-90: every public method of every repository."""
    found = every_verb(postgres_database, SHORT, POSTGRES)
    assert not late(found, POSTGRES), deadlines.table(late(found, POSTGRES), POSTGRES)
    assert sum(one.outcome == "BackendBusy" for one in found) > 100


@pytest.mark.parametrize("file", ["inbound.db", "outbound.db"])
def test_no_call_on_a_mailbox_with_a_held_file_waits_longer_than_promised(tmp_path: Path, file: str) -> None:
    """backends B-90: from both sides, and a sweep over it and a free one."""
    found = every_mailbox_verb(tmp_path, file, SHORT, SQLITE)
    assert not late(found, SQLITE), deadlines.table(late(found, SQLITE), SQLITE)
    assert sum(one.outcome == "BackendBusy" for one in found) > 20


def every_mailbox_verb(
    root: Path, file: str, settings: Settings, promise: float, at_once: int = AT_ONCE
) -> list[Timed]:
    """What came of every call on a mailbox while one of its files was held."""
    boxes = [Mailboxes(root, settings=settings) for _ in range(at_once)]
    for session in ("held", "free"):
        boxes[0].create("g", session)
    asked = list(deadlines.mailbox_verbs(boxes[0]))
    with held_file(root / "g" / "held" / file):
        return timed(boxes, asked, promise)


def test_a_session_whose_file_is_held_costs_a_sweep_one_share_and_the_others_go_on(tmp_path: Path) -> None:
    """mailbox MB-79: opening it and all steps of its sweep end together."""
    boxes = Mailboxes(tmp_path, settings=SHORT)
    for session in ("a", "held", "b"):
        boxes.create("g", session)
    sessions = [("g", name) for name in ("a", "held", "b")]
    for file in ("inbound.db", "outbound.db"):
        with held_file(tmp_path / "g" / "held" / file):
            began = time.monotonic()
            reports = boxes.sweep(sessions, lambda *_: None)
            took = time.monotonic() - began
        assert [bool(report.errors) for report in reports] == [False, True, False]
        assert took < SQLITE * 1.25 + deadlines.WORK_SECONDS


def test_opening_a_store_on_a_held_file_ends_with_one_wait_for_the_lock(sqlite_database: Database) -> None:
    """backends B-90: also where setting up a connection reads the file."""
    settings = SHORT.model_copy(update={"journal_mode": "delete"})
    with sqlite_database.open(settings=settings) as store:
        path = store.backend.files[0]
    with held_file(path):
        began = time.monotonic()
        with pytest.raises(BackendBusy):
            StateStore.open(path, settings=settings)
        assert time.monotonic() - began < SQLITE * 1.25 + deadlines.WORK_SECONDS


def test_a_backup_of_a_held_file_ends_as_a_statement_does(sqlite_database: Database, tmp_path: Path) -> None:
    """backends B-90: the driver's own copy waits without end."""
    with sqlite_database.open(settings=SHORT.model_copy(update={"journal_mode": "delete"})) as store:
        backend = store.backend
        with Checkout(Mode.READ, backend) as checkout, held_file(backend.files[0]):
            began = time.monotonic()
            with pytest.raises(BackendBusy):
                backend.snapshot(checkout, tmp_path / "copy.db")
            assert time.monotonic() - began < SQLITE * 1.25 + deadlines.WORK_SECONDS


@pytest.mark.soak
def test_no_call_on_a_held_database_waits_longer_than_promised_by_default(
    sqlite_database: Database, postgres_database: Database, tmp_path: Path
) -> None:
    """backends B-90: with the settings that nobody has changed. Prints the table."""
    default = Settings()
    sqlite, postgres = promised(default, default.busy_timeout), promised(default, default.lock_timeout)
    rollback = default.model_copy(update={"journal_mode": "delete"})
    tables = {
        "SQLite, rollback journal": (every_verb(sqlite_database, rollback, sqlite, 60), sqlite),
        "Postgres": (every_verb(postgres_database, default, postgres, 60), postgres),
        "mailbox, own file of the host": (
            every_mailbox_verb(tmp_path / "i", "inbound.db", default, sqlite, 60),
            sqlite,
        ),
        "mailbox, own file of the agent": (
            every_mailbox_verb(tmp_path / "o", "outbound.db", default, sqlite, 60),
            sqlite,
        ),
    }
    for name, (found, promise) in tables.items():
        print(f"\n{name}\n{deadlines.table(found, promise)}")  # noqa: T201 - it is what the test is run for
    wrong = {name: late(found, promise) for name, (found, promise) in tables.items() if late(found, promise)}
    assert not wrong, wrong


def test_a_server_that_never_answers_is_given_up_in_the_time_for_a_connection() -> None:
    """backends B-90: on Postgres, where the driver itself would wait for more than two minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://ana@127.0.0.1:{silent.getsockname()[1]}/db"
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="did not answer in time"):
            StateStore.open(url, settings=SHORT)
        assert time.monotonic() - began < SHORT.pool_timeout * 1.25 + deadlines.WORK_SECONDS


@pytest.mark.parametrize("file", ["inbound.db", "outbound.db"])
def test_an_examination_gives_each_mailbox_its_share(sqlite_database: Database, file: str) -> None:
    """backends B-90: what is held is an unreadable mailbox among others."""
    store = sqlite_database.open(settings=SHORT)
    for session in ("free", "held"):
        store.mailbox.create("g", session)
    with held_file(store.mailbox.root / "g" / "held" / file):
        began = time.monotonic()
        report = store.maintenance.doctor.examine(only=["DOC-12"])
        assert time.monotonic() - began < UNHURRIED
    [found] = report.findings
    assert found.message == "mailboxes cannot be read"
    assert [sample.partition(":")[0] for sample in found.samples] == ["g/held"]


def test_a_coroutine_that_meets_a_held_file_waits_no_longer(sqlite_database: Database) -> None:
    """backends B-90: the same calls, on worker threads."""
    opened = sqlite_database.open(settings=SHORT.model_copy(update={"journal_mode": "delete"}))
    opened.workflows.runs.list()

    async def calls(store: AsyncStateStore) -> None:
        for call in (store.workflows.runs.list, partial(store.workflows.overrides.clear, "wf")):
            began = time.monotonic()
            with pytest.raises(BackendBusy):
                await call()
            assert time.monotonic() - began < SQLITE * 1.25 + deadlines.WORK_SECONDS

    with held_file(opened.backend.files[0]):
        asyncio.run(calls(AsyncStateStore(opened)))


#: What leaves a block of `waiting`.
LEAVING = ("_leave", "__exit__")


@with_each("made", [partial(waiting.Deadline, 0.0), waiting.NoPatience], ids=["deadline", "no patience"])
def test_a_limit_of_waits_ends_with_its_block_while_the_exception_that_cut_it_off_is_looked_at(
    made: Callable[[], AbstractContextManager[object]],
) -> None:
    """backends B-87, B-90: the next waits of this thread are as long as they would have been."""

    def cut(frame: FrameType, event: str, argument: object) -> Any:
        if event == "call" and frame.f_code.co_name in LEAVING and frame.f_code.co_filename == waiting.__file__:
            raise Interrupted
        return cut

    with pytest.raises(Interrupted) as raised, traced(cut), made():
        waiting.until(1)
    assert waiting.until(60) > time.monotonic() + 30
    waiting.refuse_ended()
    assert raised.value.__traceback__ is not None
