"""Which backend a URL or an engine leads to."""

import importlib.metadata
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, MisuseError, NotSupported
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

THIRD_PARTY = Path(__file__).parents[1] / "fixtures" / "third_party_backend"


@with_each("url", ["mysql://ana:a-secret@db/state", "mssql+pyodbc://ana:a-secret@db/state"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(url: str) -> None:
    """backends B-4."""
    with pytest.raises(InvalidValue, match="unknown scheme") as refused:
        StateStore.open(url)
    assert refused.value.details["permitted"] == ("postgres", "postgresql", "sqlite")
    assert "secret" not in str(refused.value)


@with_each(
    ("url", "problem"),
    [
        ("sqlite://state/lastlight.db", "three slashes"),
        ("sqlite://ana:a-secret@/lastlight.db", "three slashes"),
        ("sqlite:///lastlight.db?mode=ro", "options"),
        ("sqlite+aiosqlite:///lastlight.db", "driver 'aiosqlite'"),
        ("postgresql+asyncpg://ana:a-secret@db/state", "driver 'asyncpg'"),
        ("postgresql+psycopg2://db/state", "driver 'psycopg2'"),
        ("postgresql:///state?host=db&port=a-secret", "hosts and ports"),
        ("postgresql:///state?host=a,b&port=1,2,3", "hosts and ports"),
    ],
)
def test_a_url_that_would_not_do_what_it_says_is_refused(
    url: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-4."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=problem) as refused:
        StateStore.open(url)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_no_server_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-4."""
    monkeypatch.setitem(sys.modules, "lastlight_state.backends.postgres", None)
    with pytest.raises(MisuseError, match=r"lastlight-state\[postgres\]"):
        StateStore.open("postgresql://db/state")


def test_a_login_without_a_scheme_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-4."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="login without a scheme"):
        StateStore.open("ana:a-secret@db/state")
    assert list(tmp_path.iterdir()) == []


def test_sqlite_has_no_schemas(tmp_path: Path) -> None:
    """house H-23."""
    with pytest.raises(InvalidValue, match="schema: SQLite has no schemas"):
        StateStore.open(tmp_path / "lastlight.db", schema="agents")
    assert list(tmp_path.iterdir()) == []


def test_the_schema_of_the_environment_is_for_stores_on_postgres(
    tmp_path: Path, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """house H-23: stores of both may stand in one process."""
    monkeypatch.setenv("LASTLIGHT_STATE_SCHEMA", "agents")
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'host.db'}")
    with StateStore.open(tmp_path / "a.db") as store, StateStore.open(engine=engine, migrate=True) as hosted:
        assert (store.backend.schema, hosted.backend.schema) == (None, None)
    engine.dispose()
    with StateStore.open(postgres_database.url, migrate=True) as store:
        assert store.backend.schema == "agents"
    with pytest.raises(InvalidValue, match="schema: SQLite has no schemas"):
        StateStore.open(tmp_path / "a.db", schema="others")


@with_each("url", ["sqlite+aiosqlite://", "postgresql+asyncpg://"])
def test_an_engine_with_another_driver_is_refused(url: str) -> None:
    """backends B-10, engine=."""
    engine = sa.create_mock_engine(url, lambda *_: None)
    with pytest.raises(NotSupported, match=url.partition("+")[2].removesuffix("://")):
        StateStore.open(engine=engine)  # type: ignore[arg-type]


def test_an_engine_of_an_unknown_product_is_refused() -> None:
    """backends B-10, engine=."""
    engine = sa.create_mock_engine("mysql://", lambda *_: None)
    with pytest.raises(InvalidValue, match="unknown scheme 'mysql'"):
        StateStore.open(engine=engine)  # type: ignore[arg-type]


def test_a_third_partys_backend_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-15."""
    monkeypatch.syspath_prepend(str(THIRD_PARTY))
    assert "memolite" in importlib.metadata.entry_points(group="lastlight_state.backends").names
    with StateStore.open("memolite://anywhere") as store:
        assert store.backend.name == "memolite"
        run = store.workflows.runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p", context={"n": 1})
        assert store.workflows.runs.get(run.id) == run


def test_postgres_without_its_driver_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-4."""
    monkeypatch.delitem(sys.modules, "lastlight_state.backends.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MisuseError, match=r"^Postgres needs an optional library: .*lastlight-state\[postgres\]"):
        StateStore.open("postgresql://localhost/x")
