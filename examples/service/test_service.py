"""The service on SQLite and Postgres: its routes in this process, and all of it in processes of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from alembic import command
from app import app
from fastapi.testclient import TestClient
from migrate import config_of, migrate

FOLDER = Path(__file__).parent
PULL = {"pull": "pull-31", "repo": "acme/widgets", "sender": "ana", "changed": ["a.py", "b.py"]}
DELIVERED = {"x-delivery": "delivery-1"}


@pytest.fixture(scope="session")
def lastlight_migrations():
    """Make the service's tables in each database that the plugin gives to a test."""
    return migrate


@pytest.fixture
def url(lastlight_fresh_database, monkeypatch):
    """Return the URL of a migrated database of the test's own, which the service finds in its environment."""
    database = lastlight_fresh_database
    url = f"sqlite:///{database.url}" if database.name == "sqlite" else database.url
    monkeypatch.setenv("DATABASE_URL", url.replace("postgresql://", "postgresql+psycopg://"))
    return url


@pytest.fixture
def client(url):
    """Return a client of the routes."""
    with TestClient(app) as client:
        yield client


def test_both_routes_store_a_shipment_with_its_run(client):
    """A delivery that comes twice is one shipment, and one that cannot be stored leaves no run."""
    first, again = (client.post("/hooks/ship", json=PULL, headers=DELIVERED).json() for _ in range(2))
    assert (first["run"], first["created"], again["created"]) == (again["run"], True, False)
    assert client.post("/shipments/pull-32", json={"repo": "acme/widgets", "changed": []}).status_code == 200
    open_ones = [{"pull": f"pull-{number}", "state": "open", "status": "running"} for number in (31, 32)]
    assert client.get("/shipments").json() == open_ones


def test_neither_is_stored_where_the_shipment_is_there_already(client):
    """The key of the service's own table decides, in both routes."""
    client.post("/hooks/ship", json=PULL, headers=DELIVERED)
    runs = app.state.store.workflows.runs.list()
    with pytest.raises(Exception, match="shipments"):
        client.post("/hooks/ship", json=PULL, headers={"x-delivery": "delivery-2"})
    with pytest.raises(Exception, match="shipments"):
        client.post("/shipments/pull-31", json={"repo": "acme/widgets", "changed": []})
    assert app.state.store.workflows.runs.list() == runs


def test_two_servers_and_two_workers_ship_once(url):
    """Eight webhooks at once, a question that is answered once, a stream that ends with its run, SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ["-m", "uvicorn", "app:app", "--port", str(port), "--workers", "2", "--timeout-graceful-shutdown", "10"]
    with processes(server, ["worker.py"], ["worker.py"]), httpx.Client(base_url=f"http://127.0.0.1:{port}") as web:
        until(lambda: web.get("/shipments").status_code == 200)
        with ThreadPoolExecutor(8) as pool:
            sent = [pool.submit(web.post, "/hooks/ship", json=PULL, headers=DELIVERED, timeout=60) for _ in range(8)]
        received = [each.result().json() for each in sent]
        assert sorted(one["created"] for one in received) == [False] * 7 + [True]
        [run_id] = {one["run"] for one in received}

        seen = []
        with web.stream("GET", f"/runs/{run_id}/events", timeout=60) as story:
            for line in story.iter_lines():
                seen.append(line)
                if "approval merge: asked" in line:
                    [gate] = web.get("/gates").json()
                    answers = [
                        web.post(f"/gates/{gate['id']}", json={"decision": decision, "user": user})
                        for decision, user in (("approved", "ana"), ("rejected", "bo"))
                    ]
                    assert [each.status_code for each in answers] == [200, 409]
                    assert answers[1].json()["by"] == "ana"
        assert [line for line in seen if line][-2:] == ["event: end", "data: succeeded"]
        assert sum("shipment.merged" in line for line in seen if line.startswith("data:")) == 1
        assert web.get("/shipments").json() == [{"pull": "pull-31", "state": "merged", "status": "succeeded"}]


@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_the_revisions_make_what_the_models_say(url):
    """`alembic check` proposes nothing, of the library's tables neither."""
    command.check(config_of(os.environ["DATABASE_URL"]))


@contextmanager
def processes(*commands):
    """Run these programs, and end them as a process manager does: each ends in good order."""
    started = [subprocess.Popen([sys.executable, *command], cwd=FOLDER, env=os.environ) for command in commands]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(timeout=60) for process in started]
    assert ended == [0] * len(started)


def until(holds):
    """Wait until the servers answer."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if holds():
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("nobody answers")
