import asyncio
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.garbage import collect
from support.undone import Boom, undone

from lastlight_state import AsyncStateStore, Settings, StateStore, View
from lastlight_state.backends import backend_of_engine
from lastlight_state.backends.base import Options
from lastlight_state.errors import (
    BackendUnavailable,
    Conflict,
    InvalidValue,
    MisuseError,
    NestedTransaction,
    NotFound,
    NotMigrated,
    ReadOnlyTransaction,
    StateError,
    StoreClosed,
)
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, Trigger, WorkflowRun

TRIGGER = Trigger(type="cli", id="t")


def create(on: Any, name: str = "w") -> str:
    made: str = on.workflows.runs.create(name, trigger=TRIGGER, phase="p").id
    return made


def names(on: Any) -> list[str]:
    return sorted(run.workflow_name for run in on.workflows.runs.list())


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# ---- Opening and closing ---------------------------------------------------------------------------------------------


def test_a_store_is_a_context_manager_and_refuses_calls_after_its_end(database: Database) -> None:
    """backends B-12."""
    with database.open() as store:
        run = create(store)
    calls: list[Callable[[], object]] = [
        lambda: store.workflows.runs.get(run),
        lambda: create(store),
        lambda: store.transaction().__enter__(),
        lambda: store.view().__enter__(),
        lambda: store.run(create),
    ]
    for call in calls:
        with pytest.raises(StoreClosed, match="the store is closed"):
            call()


def test_closing_twice_is_closing_once(database: Database) -> None:
    """backends B-12: idempotent."""
    store = database.open()
    store.close()
    store.close()
    assert names(database.open()) == []


def test_closing_inside_a_block_is_refused_because_it_could_never_end(every_backend: StateStore) -> None:
    """backends B-12."""
    with every_backend.transaction() as tx:
        with pytest.raises(NestedTransaction):
            every_backend.close()
        create(tx)
    assert names(every_backend) == ["w"]


def test_closing_lets_the_units_of_other_threads_end(every_backend: StateStore) -> None:
    """backends B-12."""
    inside, closing = threading.Event(), threading.Event()

    def work() -> None:
        with every_backend.transaction() as tx:
            create(tx)
            inside.set()
            closing.wait(30)

    thread = in_thread(work)
    inside.wait(30)
    closer = in_thread(every_backend.close)
    closing.set()
    closer.join()
    thread.join()
    with pytest.raises(StoreClosed):
        names(every_backend)


def test_postgres_is_not_migrated_unless_asked_and_says_how(postgres_url: str) -> None:
    """backends B-13: ``migrate``."""
    with pytest.raises(NotMigrated, match="lastlight-state migrate --url"):
        StateStore.open(postgres_url)
    with StateStore.open(postgres_url, migrate=True) as store:
        assert names(store) == []
    StateStore.open(postgres_url).close()


def test_sqlite_is_migrated_unless_told_otherwise(state_dir: Path) -> None:
    """backends B-13: ``migrate``."""
    path = state_dir / "lastlight.db"
    with pytest.raises(NotMigrated):
        StateStore.open(path, migrate=False)
    assert not path.exists()
    StateStore.open(path).close()
    StateStore.open(path, migrate=False).close()


@pytest.mark.parametrize("options", [{"durability": "sometimes"}, {"migrate": "perhaps"}])
def test_a_wrong_argument_is_named_before_anything_is_created(state_dir: Path, options: dict[str, Any]) -> None:
    """backends B-2."""
    with pytest.raises(InvalidValue, match=next(iter(options))):
        StateStore.open(state_dir / "lastlight.db", **options)
    assert list(state_dir.iterdir()) == []


def test_arguments_beat_the_settings_given(state_dir: Path) -> None:
    """backends B-1."""
    settings = Settings(url=str(state_dir / "settings.db"), read_only=True)
    with StateStore.open(state_dir / "argument.db", read_only=False, settings=settings) as store:
        create(store)
    assert {file.name for file in state_dir.iterdir()} == {"argument.db"}


def test_a_read_only_store_reads_and_refuses_to_write(database: Database) -> None:
    """backends B-14: ``read_only``."""
    run = create(database.open())
    store = database.open(read_only=True)
    assert store.workflows.runs.get(run).id == run
    with store.view() as view:
        assert names(view) == ["w"]
    calls: list[Callable[[], object]] = [
        lambda: create(store),
        lambda: store.workflows.runs.set_trace(run, trace_id="t", span_id=None),
        lambda: store.transaction().__enter__(),
        lambda: store.run(create),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyTransaction):
            call()


class WallClock:
    """A caller's clock: in the zone of the place, to the microsecond, or in no zone at all."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._now = datetime(2026, 2, 3, 14, 30, 0, 123_456, tzinfo=zone)

    def now(self) -> datetime:
        return self._now


def test_the_times_of_any_clock_are_kept_in_utc_and_milliseconds(database: Database) -> None:
    """house H-30: what is returned equals what is stored."""
    store = database.open(clock=WallClock(timezone(timedelta(hours=2))))
    made = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
    store.workflows.runs.append_phase(made.id, PhaseEntry("build", True))
    read = store.workflows.runs.get(made.id)
    assert read.started_at == made.started_at == datetime(2026, 2, 3, 12, 30, 0, 123_000, tzinfo=UTC)
    assert read.phase_history[0].at == datetime(2026, 2, 3, 12, 30, 0, 123_000, tzinfo=UTC)


def test_a_clock_without_a_zone_is_refused(database: Database) -> None:
    """house H-30: naive values refused."""
    with pytest.raises(InvalidValue, match="clock: naive datetime"):
        create(database.open(clock=WallClock(None)))


def test_a_clock_that_cannot_be_used_is_refused_before_anything_is_created(state_dir: Path) -> None:
    """house H-30."""
    with pytest.raises(InvalidValue, match="clock: naive datetime"):
        StateStore.open(state_dir / "new.db", clock=WallClock(None))
    assert list(state_dir.iterdir()) == []


# ---- Transactions ----------------------------------------------------------------------------------------------------


def test_what_a_block_writes_is_kept_together(store: StateStore) -> None:
    """backends B-40."""
    with store.transaction() as tx:
        create(tx, "a")
        create(tx, "b")
        assert names(tx) == ["a", "b"]
    assert names(store) == ["a", "b"]


def test_what_a_block_wrote_before_it_failed_is_undone_together(store: StateStore) -> None:
    """backends B-40."""

    def work(tx: Any) -> None:
        create(tx, "a")
        create(tx, "b")

    undone(store, work)
    assert names(store) == []


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_body_that_is_interrupted_leaves_the_connection_clean(
    every_backend: StateStore, interruption: type[BaseException]
) -> None:
    """backends B-40: never leaves a transaction open."""
    for block in (every_backend.transaction, every_backend.view):
        entered: Any = block()
        entered.__enter__().workflows.runs.list()
        assert not entered.__exit__(interruption, interruption(), None)
    create(every_backend)
    with every_backend.transaction() as tx:
        create(tx)
    assert names(every_backend) == ["w", "w"]


def test_a_call_that_fails_in_a_block_undoes_itself_and_the_block_goes_on(store: StateStore) -> None:
    """backends B-41: the same on both databases, although on Postgres an error ends a transaction."""
    with store.transaction() as tx:
        run = create(tx)
        with pytest.raises(NotFound):
            tx.workflows.runs.get("none")
        with pytest.raises(Conflict):
            tx.workflows.runs.restart(run, by="ana", reason="too early")
        tx.workflows.runs.merge_scratch(run, {"n": 1})
    assert store.workflows.runs.get(run).scratch == {"n": 1}


def test_calls_and_blocks_inside_a_block_are_refused_at_once(every_backend: StateStore) -> None:
    """backends B-42, journal T-3: no silent deadlock."""
    with every_backend.transaction() as tx:
        calls: list[Callable[[], object]] = [
            lambda: names(every_backend),
            lambda: create(every_backend),
            lambda: every_backend.transaction().__enter__(),
            lambda: every_backend.view().__enter__(),
        ]
        for call in calls:
            with pytest.raises(NestedTransaction):
                call()
        create(tx)
    assert names(every_backend) == ["w"]


def test_run_inside_a_block_is_refused(every_backend: StateStore) -> None:
    """backends B-42."""
    with every_backend.view(), pytest.raises(NestedTransaction):
        every_backend.run(create)


def test_threads_have_transactions_of_their_own(every_backend: StateStore) -> None:
    """backends B-42, journal T-3: different threads are independent."""
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(5):
                with every_backend.transaction() as tx:
                    create(tx, f"{name}{number}")
                undone(every_backend, lambda tx: create(tx, "never"))
        except BaseException as error:
            failed.append(error)
            raise

    for thread in [in_thread(lambda name=name: work(name)) for name in "abcd"]:  # type: ignore[misc]
        thread.join()
    assert failed == []
    assert names(every_backend) == sorted(f"{name}{number}" for name in "abcd" for number in range(5))


def test_a_reader_in_another_thread_sees_nothing_of_an_open_transaction(every_backend: StateStore) -> None:
    """house H-40: readers never see half a transaction."""
    seen: list[list[str]] = []
    with every_backend.transaction() as tx:
        create(tx)
        in_thread(lambda: seen.append(names(every_backend))).join()
    assert seen == [[]]


def test_a_reader_is_not_kept_waiting_by_a_writer(every_backend: StateStore) -> None:
    """house H-40."""
    read: list[list[str]] = []
    with every_backend.transaction() as tx:
        create(tx)
        thread = in_thread(lambda: read.append(names(every_backend)))
        thread.join(30)
        assert not thread.is_alive()
    assert read == [[]]


def test_a_transaction_is_over_when_its_block_is(every_backend: StateStore) -> None:
    """backends B-40."""
    with every_backend.transaction() as tx:
        create(tx)
    for call in (lambda: names(tx), lambda: create(tx)):
        with pytest.raises(MisuseError, match="has ended"):
            call()
    assert names(every_backend) == ["w"]


def test_a_transaction_that_the_garbage_collector_ends_takes_no_more_calls_and_is_undone(
    every_backend: StateStore,
) -> None:
    """backends B-87: also where its body would go on. Others may have its connection by then."""
    ended: list[str] = []

    def goes_on() -> Iterator[None]:
        with every_backend.transaction() as transaction:
            overrides = transaction.workflows.overrides
            overrides.put("inside", enabled=False, reason="r", by="b")
            try:
                yield
            except GeneratorExit:
                with pytest.raises(MisuseError):
                    overrides.put("late", enabled=False, reason="r", by="b")

    def left_behind() -> Iterator[None]:
        with pytest.raises(MisuseError):
            yield from goes_on()
        ended.append("refused to commit")

    with_itself: list[Any] = [left_behind()]
    with_itself.append(with_itself)
    next(with_itself[0])
    del with_itself
    collect()
    assert ended == ["refused to commit"]
    assert list(every_backend.workflows.overrides.list()) == []


def test_a_view_is_over_when_its_block_is(every_backend: StateStore) -> None:
    """backends B-40."""
    with every_backend.view() as view:
        assert names(view) == []
    with pytest.raises(MisuseError, match="has ended"):
        names(view)


def test_the_label_is_noted_on_whatever_ends_the_block(every_backend: StateStore) -> None:
    """backends B-44, journal T-2."""
    with pytest.raises(NotFound) as raised, every_backend.transaction(label="nightly import") as tx:
        tx.workflows.runs.get("none")
    assert str(raised.value).endswith("(in the transaction 'nightly import')")
    with pytest.raises(NotFound) as again:
        every_backend.run(lambda tx: tx.workflows.runs.get("none"), label="sweep")
    assert str(again.value).endswith("(in the transaction 'sweep')")
    with pytest.raises(Boom) as foreign, every_backend.transaction(label="theirs"):
        raise Boom
    assert foreign.value.__notes__ == ["in the transaction 'theirs'"]


@pytest.mark.parametrize("way", ["view", "block", "run"])
def test_an_error_says_once_where_it_was_raised(every_backend: StateStore, way: str) -> None:
    """backends B-44: a label is said once, and a view has none."""

    def fail() -> None:
        if way == "run":
            every_backend.run(lambda tx: tx.workflows.runs.get("none"), label="nightly")
        with every_backend.view() if way == "view" else every_backend.transaction(label="nightly") as scope:
            scope.workflows.runs.get("none")

    with pytest.raises(NotFound) as raised:
        fail()
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.count("in the transaction") == (0 if way == "view" else 1)


def test_own_statements_run_inside_the_transaction(every_backend: StateStore) -> None:
    """backends B-45."""
    counted = sa.text("SELECT count(*) FROM workflow_runs")
    with every_backend.transaction() as tx:
        create(tx)
        assert tx.connection.execute(counted).scalar_one() == 1
        tx.connection.execute(sa.text("UPDATE workflow_runs SET trace_id = :trace"), {"trace": "t"})
    undone(every_backend, lambda tx: tx.connection.execute(sa.text("UPDATE workflow_runs SET trace_id = 'never'")))
    with every_backend.transaction() as tx:
        assert tx.connection.execute(sa.text("SELECT trace_id FROM workflow_runs")).scalar_one() == "t"


def test_an_own_statement_that_failed_and_was_caught_commits_all_or_nothing(every_backend: StateStore) -> None:
    """backends B-45: on Postgres the COMMIT of such a transaction would be a silent rollback."""
    hooks: list[str] = []

    def work() -> None:
        with every_backend.transaction() as tx:
            create(tx, "before")
            tx.after_commit(lambda: hooks.append("ran"))
            with pytest.raises(sa.exc.DBAPIError):
                tx.connection.execute(sa.text("SELECT nothing FROM nowhere"))

    if every_backend.backend.name == "sqlite":
        work()
        assert (names(every_backend), hooks) == (["before"], ["ran"])
        return
    with pytest.raises(MisuseError, match="nothing more of it can be committed"):
        work()
    assert (names(every_backend), hooks) == ([], [])


# ---- Views -----------------------------------------------------------------------------------------------------------


def test_a_view_sees_one_moment(every_backend: StateStore) -> None:
    """backends B-46: every read in it sees the same moment."""
    create(every_backend, "before")
    with every_backend.view() as view:
        assert names(view) == ["before"]
        in_thread(lambda: create(every_backend, "meanwhile")).join()
        assert names(view) == ["before"]
    assert names(every_backend) == ["before", "meanwhile"]


def test_a_function_reads_one_moment(every_backend: StateStore) -> None:
    """backends B-191: it may not write, and its view is over with it."""
    create(every_backend, "before")

    def work(view: View) -> tuple[list[str], View]:
        assert names(view) == ["before"]
        in_thread(lambda: create(every_backend, "meanwhile")).join()
        with pytest.raises(ReadOnlyTransaction):
            create(view)
        with pytest.raises(NestedTransaction):
            every_backend.workflows.runs.list()
        return names(view), view

    found, view = every_backend.read(work)
    assert found == ["before"]
    with pytest.raises(MisuseError):
        names(view)
    with every_backend.transaction(), pytest.raises(NestedTransaction):
        every_backend.read(names)


def test_a_function_that_lost_its_connection_reads_again(every_backend: StateStore) -> None:
    """backends B-191"""
    create(every_backend, "r")
    tries: list[View] = []

    def work(view: View) -> list[str]:
        tries.append(view)
        if len(tries) == 1:
            raise BackendUnavailable("away", repeats=2)
        return names(view)

    assert every_backend.read(work) == ["r"]
    assert len(tries) == 2


def test_a_view_refuses_to_write(store: StateStore) -> None:
    """backends B-46."""
    with store.view() as view:
        with pytest.raises(ReadOnlyTransaction):
            create(view)
        assert names(view) == []


# ---- Hooks -----------------------------------------------------------------------------------------------------------


def test_hooks_run_once_after_the_commit_in_order(every_backend: StateStore) -> None:
    """backends B-47; they may use the store."""
    hooks: list[tuple[str, list[str]]] = []
    with every_backend.transaction() as tx:
        create(tx)
        for name in ("first", "second"):
            tx.after_commit(lambda name=name: hooks.append((name, names(every_backend))))  # type: ignore[misc]
        assert hooks == []
    assert hooks == [("first", ["w"]), ("second", ["w"])]
    create(every_backend)
    assert len(hooks) == 2


def test_hooks_never_run_after_a_rollback(every_backend: StateStore) -> None:
    """backends B-47."""
    hooks: list[str] = []
    undone(every_backend, lambda tx: tx.after_commit(lambda: hooks.append("never")))
    assert hooks == []


def test_a_hook_that_fails_is_logged_and_counted_and_the_commit_stands(
    every_backend: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-47."""
    hooks: list[str] = []

    def fail() -> None:
        raise Boom

    with every_backend.transaction() as tx:
        create(tx)
        tx.after_commit(fail)
        tx.after_commit(lambda: hooks.append("ran"))
    assert (names(every_backend), hooks, every_backend.metrics.failed_hooks) == (["w"], ["ran"], 1)
    assert [record.getMessage() for record in caplog.records] == ["an after-commit hook failed"]


def test_every_error_of_a_store_is_one_of_ours(every_backend: StateStore) -> None:
    """house H-51."""
    for call in (lambda: every_backend.workflows.runs.get("none"), lambda: every_backend.workflows.runs.list(limit=0)):
        with pytest.raises(StateError) as raised:
            call()
        assert not isinstance(raised.value, BackendUnavailable)


def test_stores_open_by_a_file_that_holds_the_url(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-89."""
    file = tmp_path / "url"
    file.write_text(database.url + "\n", encoding="utf-8")
    with StateStore.open(url_file=file, state_dir=database.state_dir) as store:
        run = store.workflows.runs.create("review", trigger=Trigger("t-1"), phase="plan")
    monkeypatch.setenv("LASTLIGHT_STATE_URL_FILE", str(file))

    async def found() -> WorkflowRun:
        async with await AsyncStateStore.open(state_dir=database.state_dir) as opened:
            return await opened.workflows.runs.get(run.id)

    assert asyncio.run(found()) == run


def test_the_repr_of_a_store_names_its_database_and_whether_it_is_open(database: Database) -> None:
    """house H-10."""
    store = database.open()
    told = repr(store)
    assert told == f"StateStore({store.backend.location!r}, open)"
    assert repr(AsyncStateStore(store)) == f"Async{told}"
    store.close()
    assert repr(store) == told.replace("open)", "closed)")
    assert repr(store.metrics).startswith("Metrics(retries=0, gave_up=0, failed_hooks=0, ")


def test_the_repr_of_a_store_keeps_passwords_to_itself() -> None:
    """house H-10."""
    engine = sa.create_engine("postgresql+psycopg://app:s3cret@db.invalid/agents?sslpassword=s3cret")
    store = StateStore(backend_of_engine(engine, Options()), Settings())
    assert repr(store) == "StateStore('postgresql://app:***@db.invalid/agents?sslpassword=%2A%2A%2A', open)"
    store.close()
