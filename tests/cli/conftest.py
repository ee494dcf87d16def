"""Databases in every state that the command line may meet, made once: commands that look change none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import STATES, UNKNOWN, Said, Target, Terminal, fill, lastlight_state

from lastlight_state.cli.program import run
from lastlight_state.store import StateStore
from lastlight_state.testing.databases import PostgresTemplate, SqliteTemplate
from lastlight_state.testing.postgres import ThrowawayPostgres


@pytest.fixture(autouse=True)
def _away_from_any_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of whoever runs the tests reaches the program, which works in the test's own folder."""
    for name in list(os.environ):
        if name.startswith("LASTLIGHT_STATE_") or name == "STATE_DIR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def sqlite_targets(tmp_path_factory: pytest.TempPathFactory, sqlite_template: SqliteTemplate) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("targets")
    urls = {state: str(folder / f"{state}.db") for state in STATES}
    migrate(urls["empty"])
    migrate(urls["behind"], to="0001")
    Path(urls["unreachable"]).write_text("a letter to somebody\n" * 100, encoding="utf-8")
    return filled("sqlite", urls)


@pytest.fixture(scope="session")
def postgres_targets(
    postgres_server: ThrowawayPostgres, postgres_template: PostgresTemplate
) -> Iterator[dict[str, Target]]:
    urls = {state: postgres_server.create_database() for state in ("empty", "populated", "behind", "missing")}
    postgres_server.drop_database(urls["missing"])
    urls["unreachable"] = "postgresql://ana:wonderland@127.0.0.1:1/nowhere"
    migrate(urls["empty"])
    migrate(urls["behind"], to="0001")
    yield filled("postgresql", urls)
    for state in ("empty", "populated", "behind"):
        postgres_server.drop_database(urls[state])


@pytest.fixture(params=("sqlite", "postgres"))
def targets(request: pytest.FixtureRequest) -> dict[str, Target]:
    """By state, on each backend."""
    found: dict[str, Target] = request.getfixturevalue(f"{request.param}_targets")
    return found


@pytest.fixture(params=STATES)
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Target:
    """Each state on each backend."""
    return targets[request.param]


def migrate(url: str, *, to: str = "head") -> None:
    said = lastlight_state("migrate", "--url", url, "--to", to)
    assert said.code == 0, said


def filled(backend: str, urls: dict[str, str]) -> dict[str, Target]:
    with StateStore.open(urls["populated"], migrate=True) as store:
        ids = fill(store)
    return {state: Target(url, backend, state, ids if state == "populated" else UNKNOWN) for state, url in urls.items()}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the program at a terminal of a width, where somebody answers what it asks."""

    def typed(*words: object, width: int = 80, answer: str = "") -> Said:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(width))
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        out, err, asked = Terminal(), Terminal(), Terminal(answer)
        for name, stream in (("stdout", out), ("stderr", err), ("stdin", asked)):
            monkeypatch.setattr(sys, name, stream)
        code = run([str(word) for word in words])
        return Said(code, out.getvalue(), err.getvalue())

    return typed
