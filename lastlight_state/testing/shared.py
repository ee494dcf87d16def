"""One Postgres for a whole test run: started before the first test, named in the header, shared by xdist workers."""

from __future__ import annotations

from typing import Any

import pytest

from lastlight_state import testing
from lastlight_state.errors import StateError

WORKER_KEY = "lastlight_postgres_url"


class SharedPostgres:
    """The hooks of a run's main process. A run that cannot have its server ends at once, with every reason."""

    def __init__(self) -> None:
        self.server: testing.ThrowawayPostgres | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly:
            try:
                self.server = testing.ThrowawayPostgres.start()
            except StateError as error:
                raise pytest.UsageError(str(error)) from error

    def pytest_report_header(self) -> str | None:
        return f"postgres: {self.server.origin}" if self.server else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self.server:
            node.workerinput[WORKER_KEY] = self.server.url

    def pytest_unconfigure(self) -> None:
        if self.server:
            self.server.stop()


def shared_server(config: pytest.Config) -> testing.ThrowawayPostgres | None:
    """The server of the whole run, as seen from its main process or from a worker; None when each starts its own."""
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    if WORKER_KEY in worker_input:
        return testing.ThrowawayPostgres(worker_input[WORKER_KEY])
    hooks = config.pluginmanager.get_plugin(SharedPostgres.__name__)
    return hooks.server if isinstance(hooks, SharedPostgres) else None
