"""What the program may do for a role of Postgres that can only SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import make_url
from support.cli.calls import Filled, Said, fill, lastlight_state

from lastlight_state.conversations import NewSession
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.testing.databases import PostgresTemplate
from lastlight_state.testing.postgres import connect

LOOKING = [
    "check",
    "current",
    "history",
    "stats",
    "doctor",
    "ls runs",
    "ls executions",
    "ls approvals",
    "ls messaging",
    "ls sessions",
    "ls crons",
    "ls questions",
    "ls mailboxes",
    "ls receipts",
    "receipts",
    "ls outputs",
    "ls questions",
    "ls mailboxes",
    "log {run}",
    "export run {run} --out {folder}/run",
    "show run {run}",
    "show run {run} --history",
    "show execution {execution}",
    "show approval {approval}",
    "show messaging {messaging}",
    "show session talk",
    "query SELECT+1",
    "prune --dry-run --kind runs",
    "reap --dry-run",
    "redact --session talk --dry-run",
    "repair --counters --dry-run",
    "migrate",  # nothing is to be done
    "checkpoint",
]
WRITING = [
    "prune --kind runs --keep-days 0 --keep-n 0 -y",
    "reap",
    "redact --session talk -y",
    "repair --counters",
    "run {run} cancel",
    "answer {approval} --approve",
    "override workflow audit --off",
    "vacuum",
    "erase ana -y",
    "stamp --to head",
    "import {folder}/bundle --on-conflict new_ids",
]


@pytest.fixture(scope="module")
def place(
    postgres_template: PostgresTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Filled]]:
    """A filled database as such a role sees it, and the ids in it."""
    role, password = f"looker_{uuid4().hex[:8]}", uuid4().hex
    with postgres_template.fresh(tmp_path_factory.mktemp("roles"), FrozenClock()) as database:
        url = database.url
        with StateStore.open(url) as store:
            ids = fill(store)
            store.conversations.sessions.create(NewSession("talk"))
        with connect(url) as owner:
            owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
            owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        yield make_url(url).set(username=role, password=password).render_as_string(hide_password=False), ids
        with connect(url) as owner:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def said(place: tuple[str, Filled], command: str, folder: Path) -> Said:
    url, ids = place
    words = [word.format(**vars(ids), folder=folder).replace("+", " ") for word in command.split()]
    return lastlight_state(*words, "--url", url, "--json")


@pytest.mark.parametrize("command", LOOKING)
def test_a_role_that_may_only_select_can_look(place: tuple[str, Filled], command: str, tmp_path: Path) -> None:
    """maintenance OP-73, case 52."""
    answer = said(place, command, tmp_path)
    assert answer.code == 0, answer


@pytest.mark.parametrize("command", WRITING)
def test_a_role_that_may_only_select_changes_nothing(place: tuple[str, Filled], command: str, tmp_path: Path) -> None:
    """maintenance OP-73, case 52: the error says so, with its exit code."""
    if command.startswith("import"):
        assert said(place, "export run {run} --out {folder}/bundle", tmp_path).code == 0
    answer = said(place, command, tmp_path)
    assert (answer.code, answer.error) == (6, "backend_unavailable"), answer
    assert "the role lacks a right" in answer.answer["error"]["message"]
