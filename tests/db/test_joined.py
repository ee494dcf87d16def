"""``transaction(connection=…)``: calls inside a transaction that is the caller's own."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
import sqlalchemy.orm
from support.callers import engine_on
from support.undone import Boom, undone

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.backends.base import Mode
from lastlight_state.errors import (
    BackendBusy,
    ClaimLost,
    InvalidValue,
    MisuseError,
    NestedTransaction,
    NotFound,
    NotSupported,
    ReadOnlyTransaction,
    StoreClosed,
)
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")


@pytest.fixture
def engine(database: Database) -> Iterator[sa.Engine]:
    made = engine_on(database)
    yield made
    database.close()
    made.dispose()


@pytest.fixture
def store(database: Database) -> StateStore:
    return database.open()


def create(tx: Any) -> str:
    made: str = tx.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
    return made


def count(store: StateStore) -> int:
    return len(store.workflows.runs.list())


def test_what_is_joined_is_kept_by_the_callers_commit(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43: ``connection`` joins the caller's own transaction."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with store.transaction(connection=connection) as tx:
            run = create(tx)
        with pytest.raises(MisuseError, match="has ended"):
            create(tx)
        transaction.commit()
    assert [found.id for found in store.workflows.runs.list()] == [run]


def test_a_claim_is_confirmed_in_the_callers_transaction(store: StateStore, engine: sa.Engine) -> None:
    """workflows W-16: a lost one is refused, and leaves that transaction usable."""
    claims = store.workflows.claims
    lost = claims.take(create(store), owner="a")
    claim = claims.transfer(lost, owner="b")
    with engine.begin() as connection:
        with pytest.raises(ClaimLost), store.transaction(connection=connection, claim=lost):
            pytest.fail("the block was entered")
        with store.transaction(connection=connection, claim=claim) as tx:
            tx.workflows.runs.merge_scratch(claim.run_id, {"b": 2}, claim=claim)
    assert store.workflows.runs.get(claim.run_id).scratch == {"b": 2}


def test_what_is_joined_is_undone_by_the_callers_rollback(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43; the driver of SQLite has not begun by itself before the first INSERT."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with store.transaction(connection=connection) as tx:
            create(tx)
        assert connection.execute(sa.text("SELECT count(*) FROM workflow_runs")).scalar() == 1
        transaction.rollback()
    assert count(store) == 0


def test_the_callers_statements_and_ours_are_one(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43."""
    override = sa.text("INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('w', :on, :at)")
    values = {"on": True, "at": "2026-02-03T00:00:00.000Z"}
    with engine.begin() as connection:
        connection.execute(override, values)
        with store.transaction(connection=connection) as tx:
            run = create(tx)
            assert tx.connection.execute(sa.text("SELECT count(*) FROM workflow_overrides")).scalar() == 1
        assert connection.execute(sa.text("SELECT id FROM workflow_runs")).scalars().all() == [run]


def test_a_block_that_fails_is_undone_even_if_the_caller_commits(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43: all or nothing."""
    hooks: list[str] = []
    with engine.begin() as connection:
        with store.transaction(connection=connection) as tx:
            kept = create(tx)

        def work(tx: Any) -> None:
            create(tx)
            tx.after_commit(lambda: hooks.append("never"))

        undone(store, work, connection=connection)
    assert [run.id for run in store.workflows.runs.list()] == [kept]
    assert hooks == []


def test_a_call_that_fails_in_the_block_undoes_itself_alone(store: StateStore, engine: sa.Engine) -> None:
    """backends B-41."""
    with engine.begin() as connection, store.transaction(connection=connection) as tx:
        run = create(tx)
        with pytest.raises(NotFound):
            tx.workflows.runs.get("none")
    assert store.workflows.runs.get(run).id == run


def test_hooks_run_once_after_the_callers_commit_in_order(store: StateStore, engine: sa.Engine) -> None:
    """backends B-47: after commit."""
    hooks: list[tuple[str, int]] = []
    with engine.connect() as connection:
        transaction = connection.begin()
        for name in ("a", "b"):
            with store.transaction(connection=connection) as tx:
                create(tx)
                tx.after_commit(lambda name=name: hooks.append((name + "1", count(store))))  # type: ignore[misc]
                tx.after_commit(lambda name=name: hooks.append((name + "2", count(store))))  # type: ignore[misc]
        assert hooks == []
        transaction.commit()
        assert hooks == [("a1", 2), ("a2", 2), ("b1", 2), ("b2", 2)]
        with connection.begin():
            connection.execute(sa.text("SELECT 1"))
    assert len(hooks) == 4


@pytest.mark.parametrize("way", ["rollback", "close", "error"])
def test_hooks_never_run_after_a_rollback(store: StateStore, engine: sa.Engine, way: str) -> None:
    """backends B-47: after commit."""
    hooks: list[str] = []
    with suppress(Boom), engine.connect() as connection:
        transaction = connection.begin()
        with store.transaction(connection=connection) as tx:
            create(tx)
            tx.after_commit(lambda: hooks.append("never"))
        end_badly(connection, transaction, way)
        with connection.begin():
            connection.execute(sa.text("SELECT 1"))
    assert hooks == []
    assert count(store) == 0


def end_badly(connection: sa.Connection, transaction: sa.Transaction, way: str) -> None:
    if way == "error":
        raise Boom
    transaction.rollback() if way == "rollback" else transaction.close()


def test_hooks_of_a_savepoint_follow_it(store: StateStore, engine: sa.Engine) -> None:
    """backends B-47: a caller's savepoint that is undone takes its hooks along, one that is released keeps them."""
    hooks: list[str] = []

    def join(connection: sa.Connection, name: str) -> None:
        with store.transaction(connection=connection) as tx:
            create(tx)
            tx.after_commit(lambda: hooks.append(name))

    with engine.begin() as connection:
        with connection.begin_nested():
            join(connection, "released")
        undone_savepoint = connection.begin_nested()
        with connection.begin_nested():
            join(connection, "released inside one that is undone")
        join(connection, "undone")
        undone_savepoint.rollback()
        join(connection, "outside")
    assert hooks == ["released", "outside"]
    assert count(store) == 2


def test_a_hook_that_fails_harms_neither_the_commit_nor_the_others(store: StateStore, engine: sa.Engine) -> None:
    """backends B-47: logged and counted."""
    hooks: list[str] = []

    def fail() -> None:
        raise Boom

    with engine.begin() as connection, store.transaction(connection=connection) as tx:
        create(tx)
        tx.after_commit(fail)
        tx.after_commit(lambda: hooks.append("ran"))
    assert (count(store), hooks, store.metrics.failed_hooks) == (1, ["ran"], 1)


def test_a_session_of_the_callers_may_be_joined(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43."""
    hooks: list[str] = []
    with sa.orm.Session(engine) as session:
        with store.transaction(connection=session.connection()) as tx:
            create(tx)
            tx.after_commit(lambda: hooks.append("ran"))
        assert hooks == []
        session.commit()
    assert (count(store), hooks) == (1, ["ran"])


def test_a_connection_outside_a_transaction_is_refused(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43."""
    with (
        engine.connect() as connection,
        pytest.raises(MisuseError, match=r"engine\.begin"),
        store.transaction(connection=connection),
    ):
        pass


def test_a_connection_to_another_product_is_refused(store: StateStore, database: Database) -> None:
    """backends B-43."""
    other = "sqlite+pysqlite" if database.name == "postgresql" else "postgresql+psycopg"
    stranger = sa.create_engine("sqlite://" if database.name == "postgresql" else "postgresql+psycopg://")
    connection: Any = FarConnection(stranger)
    with pytest.raises(MisuseError, match=other.replace("+", r"\+")), store.transaction(connection=connection):
        pass
    stranger.dispose()


class FarConnection(sa.Connection):
    """A connection of an engine that is not reached."""

    def __init__(self, engine: sa.Engine) -> None:
        self.dialect = engine.dialect


def test_what_is_no_connection_is_refused_with_what_to_give_instead(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43."""
    asynchronous = sa.create_engine("postgresql+psycopg_async://nobody@127.0.0.1:1/none")
    made: list[tuple[Any, str]] = [
        (sa.orm.scoped_session(sa.orm.sessionmaker(engine)), r"not scoped_session: give session\(\)"),
        (sa.orm.Session(), "a session that gives no connection; give a Connection: "),
        (sa.orm.Session(engine, autobegin=False), r"give a Connection: .*session\.begin\(\)"),
        (engine, r"engine\.begin\(\) as connection"),
        (asynchronous, r"engine\.begin\(\) as connection"),
        (FarConnection(asynchronous), r"give the AsyncConnection to AsyncStateStore\.transaction"),
        (of_asyncio("AsyncEngine"), r"not AsyncEngine: give it to AsyncStateStore\.transaction"),
        (of_asyncio("AsyncConnection"), r"give it to AsyncStateStore\.transaction"),
        (of_asyncio("AsyncSession"), r"give it to AsyncStateStore\.transaction"),
        ("postgresql://db/x", "not str: give one that is inside a transaction"),
        (5, "not int"),
        (object(), "not object"),
    ]
    for given, said in made:
        with pytest.raises(MisuseError, match=said), store.transaction(connection=given):
            pass


def of_asyncio(name: str) -> object:
    """What a class of SQLAlchemy's asyncio looks like from outside; the real ones need greenlet."""
    made: object = type(name, (), {"__module__": "sqlalchemy.ext.asyncio"})()
    return made


def test_what_is_no_sync_engine_is_refused_with_what_to_give_instead(engine: sa.Engine) -> None:
    """backends B-12: both faces."""
    asynchronous = sa.create_engine("postgresql+psycopg_async://nobody@127.0.0.1:1/none")
    made: list[Any] = [asynchronous, of_asyncio("AsyncEngine"), sa.orm.Session(engine), "sqlite://", 5]
    for given in made:
        with pytest.raises((InvalidValue, NotSupported), match=r"^engine.*create_engine\(\)"):
            StateStore.open(engine=given)
        with pytest.raises((InvalidValue, NotSupported), match=r"^engine.*create_engine\(\)"):
            asyncio.run(AsyncStateStore.open(engine=given))


def test_calls_through_the_store_are_refused_inside(store: StateStore, engine: sa.Engine) -> None:
    """backends B-42: nested use is refused."""
    with engine.begin() as connection:
        with store.transaction(connection=connection):
            for call in (store.workflows.runs.list, store.view().__enter__, store.transaction().__enter__):
                with pytest.raises(NestedTransaction):
                    call()
        if store.backend.name == "postgresql":
            assert count(store) == 0


def test_a_read_only_store_joins_nothing(database: Database, engine: sa.Engine) -> None:
    """backends B-25."""
    reader = database.open(read_only=True)
    with (
        engine.begin() as connection,
        pytest.raises(ReadOnlyTransaction),
        reader.transaction(connection=connection),
    ):
        pass


def test_the_label_is_noted_on_the_error(store: StateStore, engine: sa.Engine) -> None:
    """backends B-44: ``label``."""
    with (
        engine.begin() as connection,
        pytest.raises(NotFound) as raised,
        store.transaction(connection=connection, label="import") as tx,
    ):
        tx.workflows.runs.get("none")
    assert str(raised.value).endswith("(in the transaction 'import')")


def test_a_busy_file_is_named_when_joining(state_store: StateStore, state_dir: Any) -> None:
    """backends B-21: write units ``BEGIN IMMEDIATE``, a caller's too."""
    engine = sa.create_engine(f"sqlite:///{state_dir}/lastlight.db", connect_args={"timeout": 0.01})
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql("PRAGMA recursive_triggers = ON")
        connection.commit()
        checkout = state_store.backend.acquire(Mode.WRITE)
        with connection.begin(), pytest.raises(BackendBusy), state_store.transaction(connection=connection):
            pass
        state_store.backend.rollback(checkout)
        state_store.backend.release(checkout)
    engine.dispose()


def test_a_connection_in_autocommit_is_refused_or_made_a_transaction(store: StateStore, database: Database) -> None:
    """backends B-43: on Postgres there is nothing to join before the caller begins a transaction."""
    engine = engine_on(database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        transaction = connection.begin()
        if database.name == "postgresql":
            with pytest.raises(MisuseError, match="AUTOCOMMIT"), store.transaction(connection=connection):
                pass
            connection.exec_driver_sql("BEGIN")
        with store.transaction(connection=connection) as tx:
            create(tx)
        if database.name == "postgresql":
            connection.exec_driver_sql("ROLLBACK")
        transaction.rollback()
    assert count(store) == 0
    engine.dispose()


def test_a_closed_store_joins_nothing(store: StateStore, engine: sa.Engine) -> None:
    """backends B-43."""
    store.close()
    with engine.begin() as connection, pytest.raises(StoreClosed), store.transaction(connection=connection):
        pass
