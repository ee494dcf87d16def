"""The inspector over a store in which every list has rows, on each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.filled_store import scene
from support.run_log.logs import put_example

from lastlight_state import StateStore
from lastlight_state.files.agent_log import Cwd
from lastlight_state.inspector import inspector
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.testing.plugin import BACKENDS

#: A result of a tool that its agent log shows cut.
LONG = "squeak ü\n" * 50_000


def fill(database: Database) -> StateStore:
    """Return a store with rows of every kind, an agent log and a run log."""
    store = scene(database)[0]
    put_example(store.run_log)
    with store.agent_log.writer.open(place=Cwd("/work/here"), session_id="log-0", prompt="Look.") as writer:
        call = {"type": "toolCall", "id": "call-1", "name": "bash", "arguments": {"command": "git diff"}}
        content = [{"type": "text", "text": "I look."}, call]
        writer.feed({"type": "message_end", "message": {"role": "assistant", "content": content}})
        writer.feed({"type": "tool_execution_end", "toolCallId": "call-1", "result": LONG})
        writer.append([{"type": "breadcrumb", "where": "here"}])
    return store


@pytest.fixture
def filled(fresh_database: Database) -> StateStore:
    """Return a filled store of the test's own."""
    return fill(fresh_database)


@pytest.fixture(scope="module", params=BACKENDS)
def looked_at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Return a database that is filled once for the tests of a module that only look at it."""
    template = request.getfixturevalue(f"lastlight_{request.param}_template")
    with template.fresh(tmp_path_factory.mktemp("state"), FrozenClock()) as database:
        fill(database)
        yield database


@pytest.fixture(scope="module")
def shown(looked_at: Database) -> StateStore:
    """Return its store."""
    return looked_at.open()


@pytest.fixture(scope="module")
def visitor(shown: StateStore, looked_at: Database) -> Iterator[TestClient]:
    """Return a browser for tests that only look."""
    with TestClient(inspector(shown, clock=looked_at.clock), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def browser(filled: StateStore, fresh_database: Database) -> Iterator[TestClient]:
    """Return a browser that may look."""
    with TestClient(inspector(filled, clock=fresh_database.clock), base_url="http://localhost") as client:
        yield client
