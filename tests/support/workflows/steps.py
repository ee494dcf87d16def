"""Steps that tests of the workflows domain share: runs and gates to begin with, plain SQL, threads and processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from lastlight_state import StateStore, Transaction
from lastlight_state.clock import iso_text
from lastlight_state.ids import new_id
from lastlight_state.testing import Database
from lastlight_state.workflows import Approval, Claim, Gate, RunOptions, Trigger, WorkflowRun

T = TypeVar("T")

TRIGGER = Trigger("t-1", type="webhook", owner="acme", repo="widget", issue_number=7, actor="ana", actor_type="github")
PLAN = Gate("plan", "Go ahead with the plan?")


class Raw:
    """Plain SQL on a driver connection of its own, past the library. ``?`` stands for a parameter on both databases."""

    def __init__(self, database: Database) -> None:
        self.name = database.name
        self._clock = database.clock
        self._connection = database.raw()

    def __call__(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if self.name == "sqlite":
            cursor = self._connection.execute(sql, [_sqlite_value(value) for value in values])
        else:
            cursor = self._connection.execute(sql.replace("%", "%%").replace("?", "%s"), values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    @contextmanager
    def moment(self) -> Iterator[None]:
        """A block whose reads all see the same commits."""
        self("BEGIN" if self.name == "sqlite" else "BEGIN ISOLATION LEVEL REPEATABLE READ")
        yield
        self("COMMIT")

    @contextmanager
    def without_guard(self, name: str) -> Iterator[None]:
        """A block in which a trigger of SQLite is not there."""
        [(made,)] = self("SELECT sql FROM sqlite_master WHERE name = ?", name)
        self(f"DROP TRIGGER {name}")
        yield
        self(made)

    def hold(self, run_id: str, owner: str = "worker-1") -> Claim:
        """Give a run to a holder, as a take would."""
        self("UPDATE workflow_runs SET claim_owner = ?, claim_epoch = claim_epoch + 1 WHERE id = ?", owner, run_id)
        [(epoch,)] = self("SELECT claim_epoch FROM workflow_runs WHERE id = ?", run_id)
        taken, lease = self._clock.now(), timedelta(seconds=30)
        return Claim(
            run_id=run_id,
            owner=owner,
            epoch=epoch,
            lease=lease,
            taken_at=taken,
            lease_expires_at=taken + lease,
        )

    def execution(self, run_id: str, execution_id: str | None = None) -> str:
        """An execution in flight; its id."""
        execution_id = execution_id or new_id()
        self(
            "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, workflow_run_id) "
            "SELECT ?, 'webhook', trigger_id, 'deploy:plan', started_at, id FROM workflow_runs WHERE id = ?",
            execution_id,
            run_id,
        )
        return execution_id

    def many_runs(self, count: int) -> None:
        """So many runs, 20 to the second, every tenth paused, the others succeeded."""
        for second in range(count // 20):
            at = self._clock.now() + timedelta(seconds=second)
            self(_TWENTY_RUNS, second * 20 + 1, second * 20 + 20, at, at)
        self.analyze()

    def analyze(self) -> None:
        """Bring Postgres' statistics up to date. SQLite's plans must be right without any."""
        if self.name == "postgresql":
            self("ANALYZE")

    def transitions(self, run_id: str) -> list[tuple[Any, ...]]:
        """From, to and reason of every transition, in order."""
        return self("SELECT from_status, to_status, reason FROM run_transitions WHERE run_id = ? ORDER BY seq", run_id)

    def check_history(self, run_id: str) -> None:
        """What holds of every run of ours at every commit (workflows W-11)."""
        [(status, last)] = self("SELECT status, transition_seq FROM workflow_runs WHERE id = ?", run_id)
        rows = self("SELECT seq, from_status, to_status FROM run_transitions WHERE run_id = ? ORDER BY seq", run_id)
        assert [row[0] for row in rows] == list(range(1, last + 1))
        assert rows[-1][2] == status
        assert [row[1] for row in rows] == [None, *(row[2] for row in rows[:-1])]


def started(store: Any, *, status: Any = "running", trigger: Trigger = TRIGGER, **given: Any) -> WorkflowRun:
    """A new run. Options of `RunOptions` and arguments of ``create`` are told apart by name."""
    options = {name: given.pop(name) for name in tuple(given) if name in RunOptions.__dataclass_fields__}
    name = given.pop("workflow_name", "deploy")
    created: WorkflowRun = store.workflows.runs.create(
        name, trigger=trigger, phase=given.pop("phase", "plan"), options=RunOptions(status=status, **options), **given
    )
    return created


def paused(store: Any, gate: Gate = PLAN, **given: Any) -> Approval:
    """A new run that waits at a gate."""
    approval: Approval = store.workflows.approvals.pause(started(store, **given).id, gate)
    return approval


class Undone(Exception):
    """Raised to undo a transaction."""


@contextmanager
def undone(store: StateStore) -> Iterator[Transaction]:
    """A transaction that raises at its end, so that nothing of it may stay."""
    with suppress(Undone), store.transaction() as tx:
        yield tx
        raise Undone


def together(works: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """What each work returned or raised, all begun at the same instant, each in a thread of its own."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T | BaseException:
        barrier.wait()
        try:
            return work()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def wait_until_blocked(watch: Raw) -> None:
    """Wait until somebody waits for a lock of Postgres. On SQLite nobody can look; there the outcome alone tells."""
    deadline = time.monotonic() + 30
    blocked = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    while watch.name == "postgresql" and not watch(blocked):
        assert time.monotonic() < deadline, "the write does not wait"


def all_pages(store_list: Callable[..., Any], **given: Any) -> list[Any]:
    """Every item of a list, page after page."""
    items: list[Any] = []
    page = store_list(**given)
    items += page.items
    while page.next_page_token is not None:
        page = store_list(**given, page_token=page.next_page_token)
        items += page.items
    return items


def _sqlite_value(value: Any) -> Any:
    return iso_text(value) if isinstance(value, datetime) else value


_TWENTY_RUNS = """
INSERT INTO workflow_runs (id, workflow_name, trigger_id, owner, repo, current_phase, status, started_at, updated_at)
WITH RECURSIVE n(i) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
SELECT 'r' || i, 'w' || (i % 7), 't' || (i % 50), 'acme', 'x' || (i % 9), 'plan',
       CASE i % 10 WHEN 0 THEN 'paused' ELSE 'succeeded' END, ?, ? FROM n
"""
