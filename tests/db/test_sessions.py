"""``transaction(connection=session)``: a session and the store write together, on a caller's engine as it is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.callers import engine_on
from support.undone import Boom

from lastlight_state import StateStore, Transaction
from lastlight_state.errors import MisuseError, NotFound
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

THREADS, TRANSACTIONS = 8, 40


class Base(DeclarativeBase):
    """What a host has of its own."""


class Note(Base):
    """A row of the host's."""

    __tablename__ = "host_notes"
    text: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def engine(database: Database) -> Iterator[sa.Engine]:
    """A caller's engine that sets nothing."""
    engine = sa.create_engine(database.url if database.name == "postgresql" else f"sqlite:///{database.url}")
    Base.metadata.create_all(engine)
    yield engine
    database.close()
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def store(database: Database, engine: sa.Engine) -> StateStore:
    return database.open(engine=engine)


def create(tx: Any) -> str:
    made: str = tx.workflows.runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p").id
    return made


def stored(store: StateStore, engine: sa.Engine) -> tuple[int, list[str]]:
    """How many runs there are, and the host's notes."""
    with Session(engine) as session:
        return len(store.workflows.runs.list(limit=100)), sorted(session.scalars(sa.select(Note.text)))


@pytest.mark.parametrize("given", ["session", "connection"])
def test_threads_join_transactions_of_an_engine_that_sets_nothing(
    store: StateStore, engine: sa.Engine, given: str
) -> None:
    """backends B-114: whether the pool's connection is new or was used by the store, and beside its own units."""

    def join(number: int) -> None:
        with Session(engine) as session:
            joined = session if given == "session" else session.connection()
            with store.transaction(connection=joined) as tx:
                create(tx)
                session.add(Note(text=str(number)))
            session.commit()
        if number % 4 == 0:
            with Session(engine) as session, session.begin():
                session.add(Note(text=f"alone {number}"))
            store.workflows.runs.list(limit=1)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(join, range(TRANSACTIONS)))
    runs, notes = stored(store, engine)
    assert (runs, len(notes)) == (TRANSACTIONS, TRANSACTIONS + TRANSACTIONS // 4)


def test_a_session_is_joined_and_commits_both(store: StateStore, engine: sa.Engine) -> None:
    """backends B-116."""
    hooks: list[str] = []
    with Session(engine) as session, session.begin():
        with store.transaction(connection=session) as tx:
            create(tx)
            session.add(Note(text="inside"))
            tx.after_commit(lambda: hooks.append("ran"))
        session.add(Note(text="after"))
        assert hooks == []
    assert (stored(store, engine), hooks) == ((1, ["after", "inside"]), ["ran"])


def test_a_session_that_rolls_back_takes_the_block_along(store: StateStore, engine: sa.Engine) -> None:
    """backends B-116."""
    hooks: list[str] = []
    with Session(engine) as session:
        with store.transaction(connection=session) as tx:
            create(tx)
            tx.after_commit(lambda: hooks.append("never"))
        session.rollback()
        session.commit()
    assert (stored(store, engine), hooks) == ((0, []), [])


def test_a_block_that_fails_is_undone_and_the_session_goes_on(store: StateStore, engine: sa.Engine) -> None:
    """backends B-116: the session forgets what it flushed inside, and keeps what it had before."""
    lost = Note(text="lost")
    with Session(engine) as session:
        kept = Note(text="kept")
        with store.transaction(connection=session) as tx:
            create(tx)
            session.add(kept)

        def fail(tx: Transaction) -> None:
            create(tx)
            session.add(lost)
            session.flush()
            raise Boom

        with suppress(Boom), store.transaction(connection=session) as tx:
            fail(tx)
        assert lost not in session
        assert kept in session
        session.commit()
    assert stored(store, engine) == (1, ["kept"])


def test_a_call_that_fails_in_a_sessions_block_undoes_itself_alone(store: StateStore, engine: sa.Engine) -> None:
    """backends B-41."""
    with Session(engine) as session, session.begin(), store.transaction(connection=session) as tx:
        create(tx)
        with pytest.raises(NotFound):
            tx.workflows.runs.get("none")
        session.add(Note(text="a"))
    assert stored(store, engine) == (1, ["a"])


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_session_that_ends_its_transaction_in_the_block_is_told_so(
    store: StateStore, engine: sa.Engine, end: str
) -> None:
    """backends B-43: nothing is committed in the middle."""
    hooks: list[str] = []
    session = Session(engine)

    def work() -> None:
        with store.transaction(connection=session) as tx:
            create(tx)
            session.add(Note(text="a"))
            session.flush()
            tx.after_commit(lambda: hooks.append("never"))
            getattr(session, end)()

    with pytest.raises(MisuseError):
        work()
    session.close()
    assert (stored(store, engine), hooks) == ((0, []), [])
    with Session(engine) as session, session.begin(), store.transaction(connection=session) as tx:
        create(tx)
    assert stored(store, engine) == (1, [])


def test_a_session_inside_a_savepoint_of_its_own_takes_hooks_along(database: Database) -> None:
    """backends B-47."""
    engine = engine_on(database)
    store = database.open(engine=engine)
    hooks: list[str] = []
    with Session(engine) as session, session.begin():
        for name in ("undone", "kept"):
            savepoint = session.begin_nested()
            with store.transaction(connection=session) as tx:
                create(tx)
                tx.after_commit(lambda name=name: hooks.append(name))  # type: ignore[misc]
            savepoint.rollback() if name == "undone" else savepoint.commit()
    assert (len(store.workflows.runs.list()), hooks) == (1, ["kept"])
    database.close()
    engine.dispose()
