"""``tx.connection``: whatever a host does with it, the block alone ends the transaction."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.callers import engine_on
from support.each import with_each
from support.undone import Boom

from lastlight_state import AsyncStateStore, StateStore, Transaction
from lastlight_state.backends.sql.expressions import ending_word
from lastlight_state.errors import MisuseError
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

Work = Callable[[Transaction], object]
Door = Callable[[Work], object]


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
    with store.transaction() as tx:
        Base.metadata.drop_all(tx.connection)


@pytest.fixture(params=("block", "run", "async run", "joined"))
def door(request: pytest.FixtureRequest, opened: StateStore, database: Database) -> Door:
    """A way to do a work in a transaction."""

    def block(work: Work) -> None:
        with opened.transaction() as tx:
            work(tx)

    def joined(work: Work) -> None:
        engine = engine_on(database)
        try:
            with engine.begin() as connection, opened.transaction(connection=connection) as tx:
                work(tx)
        finally:
            engine.dispose()

    def awaited(work: Work) -> object:
        return asyncio.run(AsyncStateStore(opened).run(work))

    doors: dict[str, Door] = {"block": block, "run": opened.run, "async run": awaited, "joined": joined}
    return doors[request.param]


def create(tx: Transaction) -> str:
    return tx.workflows.runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p").id


def stored(store: StateStore) -> tuple[int, list[str]]:
    """How many runs there are, and the host's notes."""
    with store.transaction() as tx:
        texts = list(tx.connection.execute(sa.select(Note.text).order_by(Note.text)).scalars())
        return len(tx.workflows.runs.list(limit=200)), texts


def emptied(store: StateStore) -> int:
    """Delete the host's notes; return how many runs there are."""
    with store.transaction() as tx:
        tx.connection.execute(sa.delete(Note))
    return stored(store)[0]


def session_commits(tx: Transaction) -> None:
    with Session(bind=tx.connection) as session:
        session.add(Note(text="a"))
        session.commit()


def session_begins(tx: Transaction) -> None:
    with Session(bind=tx.connection) as session, session.begin():
        session.add(Note(text="a"))


def session_in_a_savepoint(tx: Transaction) -> None:
    with Session(bind=tx.connection, join_transaction_mode="create_savepoint") as session, session.begin():
        session.add(Note(text="a"))


def session_nested(tx: Transaction) -> None:
    with Session(bind=tx.connection) as session, session.begin(), session.begin_nested():
        session.add(Note(text="a"))


def savepoint(tx: Transaction) -> None:
    with tx.connection.begin_nested():
        tx.connection.execute(sa.insert(Note).values(text="a"))


def written_savepoint(tx: Transaction) -> None:
    for sql in ("SAVEPOINT mine", "INSERT INTO host_notes VALUES ('a')", "ROLLBACK TO SAVEPOINT mine"):
        tx.connection.exec_driver_sql(sql)
    for sql in ("INSERT INTO host_notes VALUES ('a')", "RELEASE SAVEPOINT mine"):
        tx.connection.exec_driver_sql(sql)


def block_of_the_connection(tx: Transaction) -> None:
    with tx.connection as connection:
        connection.execute(sa.insert(Note).values(text="a"))
    tx.connection.close()


JOINING = [
    session_commits,
    session_begins,
    session_in_a_savepoint,
    session_nested,
    savepoint,
    written_savepoint,
    block_of_the_connection,
]


def test_what_joins_is_kept_at_the_end_of_the_block_with_its_hooks(opened: StateStore, door: Door) -> None:
    """backends B-45."""
    hooks: list[str] = []

    def work(tx: Transaction, joining: Work) -> None:
        create(tx)
        tx.after_commit(lambda: hooks.append("ran"))
        joining(tx)
        assert tx.connection.in_transaction()
        assert hooks == []
        create(tx)

    for joining in JOINING:
        before = emptied(opened)
        hooks.clear()
        door(partial(work, joining=joining))
        assert (joining, stored(opened), hooks) == (joining, (before + 2, ["a"]), ["ran"])


def test_what_joins_is_undone_with_the_block(opened: StateStore, door: Door) -> None:
    """backends B-45."""
    hooks: list[str] = []

    def work(tx: Transaction, joining: Work) -> None:
        create(tx)
        tx.after_commit(lambda: hooks.append("never"))
        joining(tx)
        raise Boom

    for joining in JOINING:
        with suppress(Boom):
            door(partial(work, joining=joining))
        assert (joining, stored(opened), hooks) == (joining, (0, []), [])


def controlled_fully(tx: Transaction) -> None:
    with Session(bind=tx.connection, join_transaction_mode="control_fully") as session:
        session.add(Note(text="a"))
        session.commit()


REFUSED: dict[str, Work] = {
    "commit": lambda tx: tx.connection.commit(),
    "begin": lambda tx: tx.connection.begin(),
    "begin_twophase": lambda tx: tx.connection.begin_twophase(),
    "twophase session": lambda tx: Session(bind=tx.connection, twophase=True).connection(),
    "detach": lambda tx: tx.connection.detach(),
    "invalidate": lambda tx: tx.connection.invalidate(),
    "isolation level": lambda tx: tx.connection.execution_options(isolation_level="AUTOCOMMIT"),
    "isolation level of a session": lambda tx: Session(bind=tx.connection).connection(
        execution_options={"isolation_level": "SERIALIZABLE"}
    ),
    "commit of the root": lambda tx: tx.connection.get_transaction().commit(),  # type: ignore[union-attr]
    "commit of the pool's connection": lambda tx: tx.connection.connection.commit(),
    "commit of the driver's": lambda tx: tx.connection.connection.dbapi_connection.commit(),  # type: ignore[union-attr]
    "mode of the driver's": lambda tx: setattr(tx.connection.connection.dbapi_connection, "isolation_level", None),
    "autocommit": lambda tx: setattr(tx.connection.connection.dbapi_connection, "autocommit", True),
    "script": lambda tx: tx.connection.connection.cursor().executescript("SELECT 1"),
    "text": lambda tx: tx.connection.execute(sa.text("COMMIT")),
    "cursor": lambda tx: tx.connection.connection.cursor().execute("COMMIT"),
    "driver": lambda tx: tx.connection.connection.dbapi_connection.execute("commit"),  # type: ignore[union-attr]
    "cursor of a result": lambda tx: tx.connection.connection.dbapi_connection.execute("SELECT 1").execute("commit"),  # type: ignore[union-attr]
}
for said in (
    "COMMIT",
    "commit work",
    "END",
    "ROLLBACK",
    "rollback transaction",
    "ABORT",
    "BEGIN",
    "START TRANSACTION",
    "PREPARE TRANSACTION 'x'",
    "-- ;\n /* ; */ COMMIT",
    "SELECT ';' ; COMMIT",
):
    REFUSED[said] = lambda tx, said=said: tx.connection.exec_driver_sql(said)  # type: ignore[misc]


def test_what_would_end_the_transaction_is_refused_and_changes_nothing(opened: StateStore, door: Door) -> None:
    """backends B-45."""
    hooks: list[str] = []

    def work(tx: Transaction, way: str) -> None:
        create(tx)
        tx.after_commit(lambda: hooks.append("ran"))
        session_begins(tx)
        try:
            REFUSED[way](tx)
        except MisuseError as error:
            assert "inside a transaction of the store" in str(error), way  # noqa: PT017 - the way is told, too
        else:
            pytest.fail(f"{way} is not refused")
        assert (way, tx.connection.execute(sa.select(Note.text)).scalars().all()) == (way, ["a"])
        create(tx)

    for way in REFUSED:
        before = emptied(opened)
        hooks.clear()
        door(partial(work, way=way))
        assert (way, stored(opened), hooks) == (way, (before + 2, ["a"]), ["ran"])


def test_a_session_that_asks_to_control_the_transaction_is_refused(opened: StateStore, door: Door) -> None:
    """backends B-45: its end undoes the block, as SQLAlchemy says of that mode."""

    def work(tx: Transaction) -> None:
        create(tx)
        controlled_fully(tx)

    with pytest.raises(MisuseError, match="commit"):
        door(work)
    assert stored(opened) == (0, [])


def session_rolls_back(tx: Transaction) -> None:
    with Session(bind=tx.connection) as session:
        session.add(Note(text="a"))
        session.flush()
        session.rollback()


def session_fails(tx: Transaction) -> None:
    with suppress(sa.exc.IntegrityError), Session(bind=tx.connection) as session, session.begin():
        session.add(Note(text="a"))
        session.flush()
        session.execute(sa.insert(Note).values(text="a"))


UNDOING: dict[str, Work] = {
    "rollback of a session": session_rolls_back,
    "failure of a session": session_fails,
    "rollback": lambda tx: tx.connection.rollback(),
    "rollback of the root": lambda tx: tx.connection.get_transaction().rollback(),  # type: ignore[union-attr]
    "rollback of the pool's connection": lambda tx: tx.connection.connection.rollback(),
}


def test_a_rollback_undoes_the_block_and_says_so(opened: StateStore, door: Door) -> None:
    """backends B-45: as a session's rollback in any program of SQLAlchemy."""
    hooks: list[str] = []

    def work(tx: Transaction, undoing: Work) -> None:
        create(tx)
        tx.after_commit(lambda: hooks.append("never"))
        undoing(tx)
        with pytest.raises(MisuseError, match="rolled back inside its block"):
            create(tx)
        with pytest.raises(MisuseError, match="rolled back inside its block"):
            tx.connection.execute(sa.insert(Note).values(text="b"))
        with pytest.raises(MisuseError, match="rolled back inside its block"):
            session_begins(tx)

    for way, undoing in UNDOING.items():
        with pytest.raises(MisuseError, match="nothing of it can be committed"):
            door(partial(work, undoing=undoing))
        assert (way, stored(opened), hooks) == (way, (0, []), [])


def test_a_rollback_to_a_savepoint_undoes_its_part_and_the_hooks_in_it(opened: StateStore, door: Door) -> None:
    """backends B-47: a session of its own savepoint, too."""
    hooks: list[str] = []

    def work(tx: Transaction) -> None:
        create(tx)
        tx.after_commit(lambda: hooks.append("kept"))
        undone = tx.connection.begin_nested()
        with tx.connection.begin_nested():
            create(tx)
            tx.after_commit(lambda: hooks.append("undone"))
        undone.rollback()
        with Session(bind=tx.connection, join_transaction_mode="create_savepoint") as session:
            session.add(Note(text="a"))
            session.flush()
            session.rollback()
        session_begins(tx)

    door(work)
    assert (stored(opened), hooks) == ((1, ["a"]), ["kept"])


def test_nothing_can_be_done_with_a_connection_after_its_block(opened: StateStore, door: Door) -> None:
    """backends B-45: others use it by then."""
    kept: list[Any] = []

    def work(tx: Transaction) -> None:
        kept.extend((tx, tx.connection, Session(bind=tx.connection)))
        kept[2].add(Note(text="a"))
        kept[2].flush()

    door(work)
    tx, connection, session = kept
    for late in (
        lambda: connection.execute(sa.select(Note)),
        lambda: connection.exec_driver_sql("DELETE FROM host_notes"),
        lambda: connection.connection.dbapi_connection.execute("SELECT 1"),
        lambda: session.execute(sa.select(Note)),
        connection.begin_nested,
        connection.commit,
    ):
        with pytest.raises(MisuseError, match="has ended"):
            late()
    session.close()
    assert stored(opened) == (0, ["a"])
    assert tx.connection is connection


def test_a_connection_is_not_given_after_the_block(opened: StateStore, door: Door) -> None:
    """backends B-45."""
    kept: list[Transaction] = []
    door(kept.append)
    with pytest.raises(MisuseError, match="has ended"):
        _ = kept[0].connection


def test_a_transaction_that_was_ended_behind_the_connection_says_so(opened: StateStore) -> None:
    """backends B-45: by the driver itself, which is not handed out."""
    hooks: list[str] = []

    def work() -> None:
        with opened.transaction() as tx:
            tx.after_commit(lambda: hooks.append("never"))
            create(tx)
            tx._scope.unit.driver.execute("ROLLBACK")
            with pytest.raises(MisuseError, match="was ended inside its block"):
                create(tx)

    with pytest.raises(MisuseError, match="was ended inside its block"):
        work()
    assert (stored(opened)[0], hooks) == (0, [])
    create(opened)  # type: ignore[arg-type]


def test_the_connection_passes_for_one_of_the_drivers(opened: StateStore) -> None:
    """backends B-45: rows are read and the cursor is set as the driver's."""
    with opened.transaction() as tx:
        session_begins(tx)
        driver: Any = tx.connection.connection.dbapi_connection
        assert isinstance(driver, type(tx._scope.unit.driver))
        with driver.cursor() as cursor:
            cursor.arraysize = 7
            assert (cursor.arraysize, list(cursor.execute("SELECT text FROM host_notes"))) == (7, [("a",)])
        insert = f"INSERT INTO host_notes VALUES ({'?' if opened.backend.name == 'sqlite' else '%s'})"
        driver.executemany(insert, [("b",), ("c",)])
        assert next(driver.execute("SELECT count(*) FROM host_notes")) == (3,)
    assert stored(opened) == (0, ["a", "b", "c"])


def test_copies_and_streams_of_the_driver_end_nothing(postgres_database: Database) -> None:
    """backends B-45."""
    with postgres_database.open() as store, store.transaction() as tx:
        create(tx)
        cursor: Any = tx.connection.connection.cursor()
        for call in (cursor.stream, cursor.copy, cursor.execute, cursor.executemany):
            with pytest.raises(MisuseError, match="COMMIT"):
                call(b"COMMIT", [])
        assert [row[0] for row in cursor.stream("SELECT 1")] == [1]


# ---- The caller's own connection, while a block has joined it -----------------------------------------------------


@pytest.fixture
def host(opened: StateStore, database: Database) -> Iterator[sa.Connection]:
    engine = engine_on(database)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.mark.parametrize("way", ["commit", "root", "session", "release", "COMMIT"])
def test_a_caller_that_commits_inside_a_joined_block_is_refused(
    opened: StateStore, host: sa.Connection, way: str
) -> None:
    """backends B-43: what the block wrote could not be undone any more."""
    root = host.begin()
    around = host.begin_nested()
    session = Session(bind=host, join_transaction_mode="control_fully")
    session.connection()
    ending: dict[str, Callable[[], object]] = {
        "commit": host.commit,
        "root": root.commit,
        "session": session.commit,
        "release": around.commit,
        "COMMIT": lambda: host.exec_driver_sql("COMMIT"),
    }
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(MisuseError, match="commit after it"),
        opened.transaction(connection=host) as tx,
    ):
        create(tx)
        ending[way]()
    host.rollback()
    assert stored(opened) == (0, [])


@pytest.mark.parametrize("way", ["rollback", "savepoint", "close"])
def test_a_caller_that_rolls_back_inside_a_joined_block_ends_it(
    opened: StateStore, host: sa.Connection, way: str
) -> None:
    """backends B-43: nothing of the block is kept, and the connection is as usable as after any rollback."""
    host.begin()
    around = host.begin_nested()
    hooks: list[str] = []

    def work() -> None:
        with opened.transaction(connection=host) as tx:
            create(tx)
            tx.after_commit(lambda: hooks.append("never"))
            {"rollback": host.rollback, "savepoint": around.rollback, "close": host.close}[way]()
            if way != "close":
                host.execute(sa.insert(Note).values(text="a"))
            with pytest.raises(MisuseError, match="rolled back inside its block"):
                create(tx)

    with pytest.raises(MisuseError, match="rolled back inside its block"):
        work()
    if way != "close":
        host.commit()
    assert (stored(opened), hooks) == ((0, [] if way == "close" else ["a"]), [])


def test_the_callers_own_savepoints_and_statements_go_on_inside_a_joined_block(
    opened: StateStore, host: sa.Connection
) -> None:
    """backends B-43."""
    with host.begin():
        with opened.transaction(connection=host) as tx:
            with host.begin_nested():
                host.execute(sa.insert(Note).values(text="a"))
            undone = host.begin_nested()
            create(tx)
            undone.rollback()
            create(tx)
        with host.begin_nested():
            host.execute(sa.insert(Note).values(text="b"))
    assert stored(opened) == (1, ["a", "b"])


@with_each(
    ("sql", "word"),
    [
        ("SELECT 'COMMIT; COMMIT'", None),
        ("INSERT INTO t VALUES (E'\\';COMMIT')", None),
        ("SELECT $$; COMMIT$$, $a$; END$a$", None),
        ('SELECT 1 AS "; COMMIT"', None),
        ("SELECT CASE WHEN 1 THEN 2 END; SELECT 3", None),
        ("ROLLBACK TO a", None),
        ("rollback work to savepoint a", None),
        ("PREPARE plan AS SELECT 1", None),
        ("CREATE TRIGGER t AFTER INSERT ON x BEGIN DELETE FROM x; END", None),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; COMMIT", "COMMIT"),
        ("SELECT 1; END", "END"),
        ("start\n transaction", "START TRANSACTION"),
        ("/* /* */ */ ROLLBACK;", "ROLLBACK"),
    ],
)
def test_the_words_that_end_a_transaction_are_found_where_they_are_words(sql: str, word: str | None) -> None:
    """backends B-45."""
    assert ending_word(sql) == word
