"""``AsyncStateStore.transaction(connection=…)``: one transaction over the store and an asynchronous session."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.undone import Boom

from lastlight_state import AsyncStateStore, StateStore, Transaction
from lastlight_state.backends.sqlite import host_connections
from lastlight_state.errors import ClaimLost, MisuseError, NestedTransaction, NotFound, StoreClosed
from lastlight_state.journal import NewEvent
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

Work = Callable[[AsyncStateStore, AsyncEngine], Awaitable[None]]
TRIGGER = Trigger(type="cli", id="t")


class Base(DeclarativeBase):
    """What a host has of its own."""


class Note(Base):
    """A row of the host's."""

    __tablename__ = "host_notes"
    text: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def opened(database: Database) -> Iterator[StateStore]:
    store = database.open()
    with store.transaction() as tx:
        Base.metadata.create_all(tx.connection)
    yield store
    with database.open() as store, store.transaction() as tx:
        Base.metadata.drop_all(tx.connection)


@asynccontextmanager
async def engine_of(database: Database, **options: Any) -> Any:
    """A caller's asynchronous engine, which sets nothing."""
    if database.name == "postgresql":
        url = sa.make_url(database.url).set(drivername="postgresql+psycopg")
    else:
        url = sa.URL.create("sqlite+aiosqlite", database=str(database.url))
    engine = create_async_engine(url, **options)
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.fixture
def awaited(opened: StateStore, database: Database) -> Callable[[Work], None]:
    """Run a work with an async store and a caller's engine, in an event loop."""

    def run(work: Work) -> None:
        async def main() -> None:
            async with engine_of(database) as engine:
                await work(AsyncStateStore(opened), engine)

        asyncio.run(main())

    return run


async def create(tx: Any) -> str:
    made: str = (await tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")).id
    return made


def stored(store: StateStore) -> tuple[int, list[str]]:
    """How many runs there are, and the host's notes."""
    with store.transaction() as tx:
        texts = list(tx.connection.execute(sa.select(Note.text).order_by(Note.text)).scalars())
        return len(tx.workflows.runs.list(limit=100)), texts


def test_an_asynchronous_session_and_the_store_commit_together(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117."""
    hooks: list[str] = []

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session, session.begin():
            async with store.transaction(connection=session) as tx:
                run = await create(tx)
                session.add(Note(text="inside"))
                tx.after_commit(lambda: hooks.append("ran"))
                assert (await tx.workflows.runs.get(run)).id == run
            session.add(Note(text="after"))
            assert hooks == []
        assert hooks == ["ran"]

    awaited(work)
    assert stored(opened) == (1, ["after", "inside"])


def test_an_asynchronous_connection_and_the_store_commit_together(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        if opened.backend.name == "sqlite":
            exec(host_connections.LISTENER, {"sqlalchemy": sa, "engine": engine.sync_engine})
        async with engine.begin() as connection:
            await connection.execute(sa.insert(Note).values(text="a"))
            async with store.transaction(connection=connection, label="both") as tx:
                await create(tx)
                await connection.execute(sa.insert(Note).values(text="b"))

    awaited(work)
    assert stored(opened) == (1, ["a", "b"])


@pytest.mark.parametrize("way", ["rollback", "error"])
def test_what_a_caller_rolls_back_leaves_nothing_of_either(
    awaited: Callable[[Work], None], opened: StateStore, way: str
) -> None:
    """backends B-117."""
    hooks: list[str] = []

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        with suppress(Boom):
            async with AsyncSession(engine) as session, session.begin():
                async with store.transaction(connection=session) as tx:
                    await create(tx)
                    session.add(Note(text="a"))
                    tx.after_commit(lambda: hooks.append("never"))
                if way == "error":
                    raise Boom
                await session.rollback()

    awaited(work)
    assert (stored(opened), hooks) == ((0, []), [])


def test_a_block_that_fails_is_undone_and_the_session_goes_on(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117, B-41: so is a call that fails, by itself alone."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session, session.begin():
            async with store.transaction(connection=session) as tx:
                await create(tx)
                with pytest.raises(NotFound):
                    await tx.workflows.runs.get("none")
            with suppress(Boom):
                async with store.transaction(connection=session) as tx:
                    await create(tx)
                    session.add(Note(text="lost"))
                    await session.flush()
                    raise Boom
            session.add(Note(text="kept"))

    awaited(work)
    assert stored(opened) == (1, ["kept"])


def test_a_task_that_is_cancelled_in_the_block_leaves_nothing_and_the_connection_works(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        entered = asyncio.Event()

        async def cut_off(connection: AsyncConnection) -> None:
            async with store.transaction(connection=connection) as tx:
                await create(tx)
                entered.set()
                while True:
                    await create(tx)

        async with engine.begin() as connection:
            task = asyncio.create_task(cut_off(connection))
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with store.transaction(connection=connection) as tx:
                await create(tx)

    awaited(work)
    assert stored(opened) == (1, [])


def test_batches_and_lists_work_inside_a_callers_transaction(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117: rows by COPY on Postgres, and texts that the driver cannot read."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection, store.transaction(connection=connection) as tx:
            run = await create(tx)
            drafts = [NewEvent("step", {"n": number}) for number in range(120)]
            await tx.journal.events.append_many(run, drafts)
            page = await tx.journal.events.list(run, limit=200)
            assert [event.payload for event in page] == [{"n": number} for number in range(120)]
            assert [one.id for one in await tx.workflows.runs.list()] == [run]

    awaited(work)
    assert stored(opened) == (1, [])


def test_calls_of_one_block_take_turns(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """backends B-117: their savepoints are not mixed."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection, store.transaction(connection=connection) as tx:
            made = await asyncio.gather(
                *(create(tx) for _ in range(10)), tx.workflows.runs.get("none"), return_exceptions=True
            )
            assert isinstance(made.pop(), NotFound)
            assert len(set(made)) == 10

    awaited(work)
    assert stored(opened) == (10, [])


def test_tasks_join_transactions_of_their_own_side_by_side(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """backends B-117: beside calls through the store, which other tasks make."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async def join(number: int) -> None:
            async with (
                AsyncSession(engine) as session,
                session.begin(),
                store.transaction(connection=session) as tx,
            ):
                await create(tx)
                session.add(Note(text=str(number)))
            await store.workflows.runs.list(limit=1)

        await asyncio.gather(*(join(number) for number in range(12)))

    awaited(work)
    runs, notes = stored(opened)
    assert (runs, len(notes)) == (12, 12)


def test_calls_through_the_store_are_refused_inside_and_in_no_other_task(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-42."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection, store.transaction(connection=connection) as tx:
            with pytest.raises(NestedTransaction):
                await store.workflows.runs.list()
            with pytest.raises(NestedTransaction):
                await store.transaction().__aenter__()
            with pytest.raises(NestedTransaction):
                await store.transaction(connection=connection).__aenter__()
            await asyncio.create_task(_lists(store))
            await create(tx)
        await _lists(store)

    awaited(work)
    assert stored(opened) == (1, [])


async def _lists(store: AsyncStateStore) -> None:
    await store.workflows.runs.list()


def test_nothing_commits_a_callers_transaction_in_the_middle_of_a_block(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-43."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async def commits() -> None:
            async with AsyncSession(engine) as session, store.transaction(connection=session) as tx:
                await create(tx)
                await session.commit()

        with pytest.raises(MisuseError):
            await commits()

        async def uses() -> None:
            async with engine.begin() as connection, store.transaction(connection=connection) as tx:
                await create(tx)
                await tx.run(lambda tx: tx.connection)

        with pytest.raises(MisuseError, match="use the connection or session that it is of"):
            await uses()

    awaited(work)
    assert stored(opened) == (0, [])


def test_a_lost_claim_is_refused_in_a_callers_transaction(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """workflows W-16."""
    claims = opened.workflows.claims
    lost = claims.take(opened.workflows.runs.create("w", trigger=TRIGGER, phase="p").id, owner="a")
    claims.transfer(lost, owner="b")

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            with pytest.raises(ClaimLost):
                await store.transaction(connection=connection, claim=lost).__aenter__()

    awaited(work)


def test_the_sync_store_joins_inside_run_sync(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """backends B-117: the bridge of SQLAlchemy, which must not be left."""

    def together(session: Session) -> None:
        with opened.transaction(connection=session) as tx:
            tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
            session.add(Note(text="a"))
            with pytest.raises(NestedTransaction):
                opened.workflows.runs.list()

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(together)

    awaited(work)
    assert stored(opened) == (1, ["a"])


def test_what_cannot_be_joined_is_refused_with_what_to_give_instead(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-117."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        async with engine.connect() as connection:
            raw = (await connection.get_raw_connection()).driver_connection
            sync = connection.sync_connection
            made: list[tuple[Any, str]] = [
                (engine, r"not AsyncEngine: use `async with engine\.begin\(\)"),
                (engine.sync_engine, "not Engine: give one"),
                (engine.connect(), r"not AsyncConnection: it is not connected"),
                (scoped, r"give session\(\)"),
                (raw, "takes an AsyncConnection or AsyncSession of SQLAlchemy, not"),
                (sync, r"not Connection: use StateStore\.transaction"),
                (Session(), r"not Session: use StateStore\.transaction"),
                ("postgresql://db/x", "not str"),
            ]
            for given, said in made:
                with pytest.raises(MisuseError, match=said):
                    store.transaction(connection=given)
                if given is not sync and not isinstance(given, Session):
                    with pytest.raises(MisuseError, match="connection= takes a Connection or Session"):
                        opened.transaction(connection=given).__enter__()
            with pytest.raises(MisuseError, match=r"give the AsyncConnection to AsyncStateStore\.transaction"):
                opened.transaction(connection=sync).__enter__()
            with pytest.raises(MisuseError, match="inside a transaction of yours"):
                await store.transaction(connection=connection).__aenter__()

    awaited(work)


def test_a_closed_store_joins_nothing(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """backends B-12."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        await store.close()
        async with engine.begin() as connection:
            with pytest.raises(StoreClosed):
                await store.transaction(connection=connection).__aenter__()

    awaited(work)


def test_a_connection_that_was_closed_in_the_block_is_an_error_of_the_library(
    awaited: Callable[[Work], None], opened: StateStore
) -> None:
    """backends B-43."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async def closes() -> None:
            async with engine.connect() as connection:
                await connection.begin()
                async with store.transaction(connection=connection) as tx:
                    await create(tx)
                    await connection.close()
                    await create(tx)

        with pytest.raises(MisuseError, match="rolled back inside its block"):
            await closes()

    awaited(work)
    assert stored(opened) == (0, [])


@pytest.mark.parametrize("through", ["store", "transaction"])
def test_a_session_over_the_stores_own_transaction_is_had_by_a_function(
    awaited: Callable[[Work], None], opened: StateStore, through: str
) -> None:
    """backends B-118: ``run`` of the async store, and of its transaction."""

    def together(tx: Transaction) -> str:
        run = tx.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
        with Session(bind=tx.connection) as session, session.begin():
            session.add(Note(text="a"))
        return run

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        if through == "store":
            run = await store.run(together)
        else:
            async with store.transaction() as tx:
                run = await tx.run(together)
                await tx.workflows.runs.merge_scratch(run, {"n": 1})
        assert (await store.workflows.runs.get(run)).id == run

    awaited(work)
    assert stored(opened) == (1, ["a"])


def test_a_callers_sqlite_connection_has_its_settings_back(sqlite_database: Database) -> None:
    """backends B-114."""

    async def work() -> None:
        async with engine_of(sqlite_database, pool_size=1, max_overflow=0) as engine:
            async with engine.connect() as connection:
                await connection.begin()
                async with AsyncStateStore(store).transaction(connection=connection) as tx:
                    await create(tx)
                    assert await _pragmas(connection) == [1, 1]
                await connection.commit()
                assert await _pragmas(connection) == [0, 0]
            async with engine.connect() as connection:
                assert await _pragmas(connection) == [0, 0]

    with sqlite_database.open() as store:
        asyncio.run(work())


async def _pragmas(connection: AsyncConnection) -> list[Any]:
    names = ("foreign_keys", "recursive_triggers")
    return [(await connection.exec_driver_sql(f"PRAGMA {name}")).scalar() for name in names]


def test_a_caller_who_wrote_before_it_joined_is_told_the_line_of_its_engine(sqlite_database: Database) -> None:
    """backends B-114: with Python 3.11 alone."""

    async def work() -> None:
        async with engine_of(sqlite_database) as engine, engine.begin() as connection:
            await connection.exec_driver_sql("CREATE TABLE mine (x)")
            await connection.exec_driver_sql("INSERT INTO mine VALUES (1)")
            joining = AsyncStateStore(store).transaction(connection=connection)
            if host_connections.SWITCHES_INSIDE:
                async with joining as tx:
                    await create(tx)
            else:
                with pytest.raises(MisuseError, match=r"event\.listen\(engine\.sync_engine, "):
                    await joining.__aenter__()

    with sqlite_database.open() as store:
        asyncio.run(work())


def test_a_block_that_nobody_will_end_keeps_nothing(awaited: Callable[[Work], None], opened: StateStore) -> None:
    """backends B-87: a task whose loop is closed leaves no trace in the store."""

    async def work(store: AsyncStateStore, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            block = store.transaction(connection=connection)
            await create(await block.__aenter__())
            with pytest.raises(NestedTransaction):
                await store.workflows.runs.list()
            del block
            gc.collect()
            await store.workflows.runs.list()
            await connection.rollback()

    awaited(work)
    assert stored(opened) == (0, [])
    assert not opened._scope.blocks
