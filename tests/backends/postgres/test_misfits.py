"""Servers that cannot be used as they are: a pooler that the settings know nothing of, a standby, no database."""

import psycopg
import pytest
from sqlalchemy import make_url
from support.old_server import server_that_says

from lastlight_state import StateStore
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.errors import BackendUnavailable, InvalidValue, NotSupported, ReadOnlyTransaction, StateError
from lastlight_state.testing import Database, ThrowawayPostgres

SAID = {"server_version": "17.0", "TimeZone": "UTC"}


@pytest.mark.parametrize(
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
        ({**SAID, "in_hot_standby": "on"}, "", ReadOnlyTransaction, "read_only=True, or connect to the primary"),
        ({**SAID, "default_transaction_read_only": "on"}, "", ReadOnlyTransaction, "read_only=True"),
    ],
)
def test_opening_names_the_setting_that_a_server_needs(
    said: dict[str, str], refusal: str, error: type[StateError], text: str
) -> None:
    """backends B-95."""
    with server_that_says(said, refusal=refusal) as url, pytest.raises(error, match=text):
        StateStore.open(url)


def test_a_server_that_only_reads_is_opened_for_reading(postgres_database: Database) -> None:
    """backends B-95."""
    reads_only = make_url(postgres_database.url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    url = reads_only.render_as_string(hide_password=False)
    with pytest.raises(ReadOnlyTransaction, match="open with read_only=True"):
        StateStore.open(url)
    with StateStore.open(url, read_only=True) as store:
        assert len(store.workflows.runs.list()) == 0


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
