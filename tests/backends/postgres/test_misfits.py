"""Servers that cannot be used as they are: a pooler that the settings know nothing of, a standby, no database."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url
from support.old_server import server_that_says

from lastlight_state import Settings, StateStore
from lastlight_state.backends.postgres.errors import translate
from lastlight_state.errors import BackendUnavailable, InvalidValue, ReadOnlyTransaction, StateError
from lastlight_state.testing import Database, ThrowawayPostgres
from lastlight_state.workflows import Trigger

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SAID = {"server_version": "17.0", "TimeZone": "UTC"}


@pytest.mark.parametrize(
    ("said", "refusal", "error", "text"),
    [
        (SAID, "unsupported startup parameter: options", InvalidValue, "pooler='transaction'"),
        (SAID, "unsupported startup parameter in options: lock_timeout", InvalidValue, "pooler='transaction'"),
        ({**SAID, "TimeZone": "Europe/Berlin"}, "", InvalidValue, "pooler='transaction'"),
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


def test_pgbouncer_is_named_unless_the_setting_is_given(postgres_database: Database) -> None:
    """backends B-95: with a real one, where it is installed."""
    if PGBOUNCER is None:
        return
    with pooled(postgres_database) as url:
        with pytest.raises(InvalidValue, match="pooler='transaction'"):
            StateStore.open(url)
        with StateStore.open(url, settings=Settings(pooler="transaction")) as store:
            run = store.workflows.runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p")
            assert store.workflows.runs.get(run.id) == run


@contextmanager
def pooled(database: Database) -> Iterator[str]:
    """The URL of the database behind a PgBouncer that lends connections per transaction."""
    server = make_url(database.url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # for whom it runs as
        host = str(server.query.get("host", server.host or "127.0.0.1"))
        user = f"user={server.username}" + (f" password='{server.password}'" if server.password else "")
        (folder / "pooler.ini").write_text(
            f"[databases]\npooled = host={host} port={server.port or 5432} dbname={server.database} {user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = transaction\n"
            "auth_type = any\n"
        )
        owner = Path(host).owner() if host.startswith("/") else "nobody"
        as_whom = ["-u", owner] if os.getuid() == 0 else []  # it does not run as root
        with subprocess.Popen([str(PGBOUNCER), "-q", *as_whom, str(folder / "pooler.ini")]) as process:
            try:
                _until_it_listens(port)
                yield f"postgresql://anybody@127.0.0.1:{port}/pooled"
            finally:
                process.terminate()


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
