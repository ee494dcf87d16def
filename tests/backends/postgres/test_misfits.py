"""Servers that cannot be used as they are: a pooler that the settings know nothing of, a standby, no database."""

from collections.abc import Mapping
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import make_url
from support.cli.calls import lastlight_state
from support.each import with_each
from support.old_server import server_that_says

from lastlight_state import StateStore
from lastlight_state.backends.base import Options
from lastlight_state.backends.postgres.connections import misfit, product
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.errors import BackendUnavailable, InvalidValue, NotSupported, ReadOnlyTransaction, StateError
from lastlight_state.testing import Database, ThrowawayPostgres

SAID = {"server_version": "17.0", "TimeZone": "UTC"}


@with_each(
    ("said", "refusal", "error", "text"),
    [
        (SAID, "unsupported startup parameter: options", InvalidValue, "pooler='transaction'"),
        (SAID, "unsupported startup parameter in options: lock_timeout", InvalidValue, "pooler='transaction'"),
        ({**SAID, "TimeZone": "Europe/Berlin"}, "", InvalidValue, "pooler='transaction'"),
        (
            {**SAID, "crdb_version": "CockroachDB CCL v26.3.1 (x86_64)"},
            "",
            NotSupported,
            "is CockroachDB CCL v26.3.1, ",
        ),
        (
            {**SAID, "server_version": "15.2-YB-2025.1.0.0-b0"},
            "",
            NotSupported,
            "is YugabyteDB 2025.1.0.0-b0, which reads",
        ),
        ({**SAID, "server_version": "16.4-Elsewhere"}, "", NotSupported, "is 16.4-Elsewhere, which nobody has tried"),
        ({**SAID, "server_version": "13.14"}, "", NotSupported, "is PostgreSQL 13.14, older than"),
        ({**SAID, "in_hot_standby": "on"}, "", ReadOnlyTransaction, "read_only=True, or connect to the primary"),
    ],
)
def test_opening_names_the_setting_that_a_server_needs(
    said: dict[str, str], refusal: str, error: type[StateError], text: str
) -> None:
    """backends B-95."""
    with server_that_says(said, refusal=refusal) as url, pytest.raises(error, match=text):
        StateStore.open(url)


@with_each("said", ["18.1", "17beta2", "18rc1", "15.18 (Debian 15.18-0+deb12u1)", "14.5", "19devel"])
def test_postgres_is_known_by_its_version(said: str) -> None:
    """cluster CL-40: with what those add who build it."""
    assert product(_info({"server_version": said})) == f"PostgreSQL {said}"
    assert misfit(_info({"server_version": said}), Options(), ours=True) is None


def test_a_server_that_is_refused_may_be_used_all_the_same() -> None:
    """cluster CL-40: where a setting says so; not one that is too old."""
    for said in ({"crdb_version": "CockroachDB CCL v26.3.1"}, {"server_version": "15.2-YB-2025.1"}):
        assert isinstance(misfit(_info(said), Options(), ours=True), NotSupported)
        assert misfit(_info(said), Options(any_server=True), ours=True) is None
    old = misfit(_info({}, number=130_014), Options(any_server=True), ours=True)
    assert isinstance(old, NotSupported)


@pytest.mark.plain_postgres("names servers that are not Citus")
@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("", "PostgreSQL"),
        ("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS 'SELECT NULL::text'", "Aurora PostgreSQL"),
    ],
)
def test_check_tells_what_server_it_met(postgres_database: Database, sql: str, name: str) -> None:
    """cluster CL-41: also one that says at connecting that it is Postgres."""
    if sql:
        postgres_database.raw().execute(sql)
    said = lastlight_state("check", "--url", postgres_database.url, "--json")
    assert said.data["server"].startswith(name)
    assert name in lastlight_state("check", "--url", postgres_database.url).out


def test_check_of_a_file_tells_of_no_server(sqlite_database: Database) -> None:
    """cluster CL-41."""
    assert lastlight_state("check", "--url", sqlite_database.url, "--json").data["server"] is None


def _info(said: Mapping[str, str], number: int = 170_000) -> SimpleNamespace:
    known = {"server_version": "17.0", "TimeZone": "UTC", **said}
    return SimpleNamespace(server_version=number, parameter_status=known.get)


def test_a_database_that_does_not_exist_is_said_as_such(postgres_server: ThrowawayPostgres) -> None:
    """house H-51."""
    url = make_url(postgres_server.url).set(database="no_such_database").render_as_string(hide_password=False)
    with pytest.raises(BackendUnavailable, match='"no_such_database" does not exist; check its URL, that it exists'):
        StateStore.open(url)


def test_statements_that_were_prepared_elsewhere_name_the_pooler(postgres_database: Database) -> None:
    """backends B-95: a pooler that ignores what is given at connect is met by its first mistake."""
    raw = postgres_database.raw()
    raw.execute("PREPARE taken AS SELECT 1")
    for sql in ("PREPARE taken AS SELECT 1", "EXECUTE none"):
        with pytest.raises(psycopg.Error) as raised:
            raw.execute(sql)
        assert "pooler='transaction'" in str(translate(raised.value))
