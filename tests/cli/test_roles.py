"""What the program may do for a role of Postgres that can only SELECT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import make_url
from support.cli.calls import Filled, Said, fill, lastlight_state
from support.each import with_each

from lastlight_state.backends import connect as connected
from lastlight_state.conversations import NewSession
from lastlight_state.migrations import migrate
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.testing.databases import PostgresTemplate
from lastlight_state.testing.postgres import ThrowawayPostgres, connect

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
    "usage",
    "usage --by day",
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
#: With the right to read sequences, too.
COPYING = [
    "backup {folder}/copied",
    "copy --to {folder}/copied --migrate-target",
    "copy --to {folder}/copied --dry-run",
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
def filled(
    postgres_template: PostgresTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Filled]]:
    """A filled database as its owner sees it, and the ids in it."""
    with postgres_template.fresh(tmp_path_factory.mktemp("roles"), FrozenClock()) as database:
        with StateStore.open(database.url) as store:
            ids = fill(store)
            store.conversations.sessions.create(NewSession("talk"))
        yield database.url, ids


@pytest.fixture(scope="module")
def place(filled: tuple[str, Filled]) -> Iterator[tuple[str, Filled]]:
    """The same as such a role sees it."""
    with looking(filled[0]) as url:
        yield url, filled[1]


@contextmanager
def looking(url: str, *, kinds: Sequence[str] = ("TABLES",)) -> Iterator[str]:
    """The URL of a database for a role that may only read what it has now of these kinds."""
    role, password = f"looker_{uuid4().hex[:8]}", uuid4().hex
    with connect(url) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # which servers before 15 grant
        for kind in kinds:
            owner.execute(f"GRANT SELECT ON ALL {kind} IN SCHEMA public TO {role}")
    try:
        yield make_url(url).set(username=role, password=password).render_as_string(hide_password=False)
    finally:
        with connect(url) as owner:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def said(place: tuple[str, Filled], command: str, folder: Path) -> Said:
    url, ids = place
    words = [word.format(**vars(ids), folder=folder).replace("+", " ") for word in command.split()]
    return lastlight_state(*words, "--url", url, "--json")


@with_each("command", LOOKING)
def test_a_role_that_may_only_select_can_look(place: tuple[str, Filled], command: str, tmp_path: Path) -> None:
    """maintenance OP-73, case 52."""
    answer = said(place, command, tmp_path)
    assert answer.code == 0, answer


@with_each("command", WRITING)
def test_a_role_that_may_only_select_changes_nothing(place: tuple[str, Filled], command: str, tmp_path: Path) -> None:
    """maintenance OP-73, case 52: the error says so, with its exit code."""
    if command.startswith("import"):
        assert said(place, "export run {run} --out {folder}/bundle", tmp_path).code == 0
    answer = said(place, command, tmp_path)
    assert (answer.code, answer.error) == (6, "backend_unavailable"), answer
    assert "the role lacks a right" in answer.answer["error"]["message"]


#: What fills or changes a database, by how far its schema is: of no revision, the first one, the newest.
FILLING = [
    ("restore {folder}/backup --to {looker} --yes", ""),
    ("restore {folder}/backup --to {looker} --yes", "head"),
    ("copy --url {source} --to {looker} --migrate-target", ""),
    ("copy --url {source} --to {looker}", "head"),
    ("migrate --url {looker}", ""),
    ("migrate --url {looker}", "0001"),
    ("migrate --url {looker} --to 0002", "0001"),
]


@pytest.fixture(scope="module")
def at_revision(
    postgres_server: ThrowawayPostgres, postgres_template: PostgresTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """URLs of databases without a row, by revision."""
    with postgres_template.fresh(tmp_path_factory.mktemp("newest"), FrozenClock()) as newest:
        urls = {"head": newest.url, "0001": postgres_server.create_database(), "": postgres_server.create_database()}
        with closing(connected(Settings(url=urls["0001"]))) as backend:
            migrate(backend, "0001")
        yield urls.__getitem__
        for revision in ("0001", ""):
            postgres_server.drop_database(urls[revision])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a filled file and its backup."""
    folder = tmp_path_factory.mktemp("sources")
    url = str(folder / "source.db")
    with StateStore.open(url, state_dir=folder) as store:
        fill(store)
        store.maintenance.backup.create(folder / "backup")
    return folder


def _rows(url: str) -> dict[str, int]:
    """The number of rows of every table that there is."""
    with connect(url) as owner:
        names = owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        counts = [owner.execute(f'SELECT count(*) FROM "{name}"').fetchall() for (name,) in names]
    return {name: count for (name,), [(count,)] in zip(names, counts, strict=True)}


@pytest.mark.parametrize(("command", "revision"), FILLING)
def test_a_role_that_may_only_select_fills_and_migrates_nothing(
    at_revision: Callable[[str], str], sources: Path, command: str, revision: str
) -> None:
    """maintenance OP-73, case 52: the error names the database that was to be written."""
    url = at_revision(revision)
    before = _rows(url)
    with looking(url) as looker:
        words = command.format(folder=sources, source=sources / "source.db", looker=looker).split()
        answer = lastlight_state(*words, "--json")
        shown = make_url(looker).render_as_string(hide_password=True).split("@")[1]
    assert (answer.code, answer.error) == (6, "backend_unavailable"), answer
    message = answer.answer["error"]["message"]
    assert "the role lacks a right" in message
    assert shown in message
    assert _rows(url) == before


@with_each("command", COPYING)
def test_a_role_that_may_not_read_sequences_copies_nothing_and_one_that_may_copies_everything(
    filled: tuple[str, Filled], place: tuple[str, Filled], command: str, tmp_path: Path
) -> None:
    """maintenance OP-73, case 52: the numbers that were given are a part of a copy."""
    refused = said(place, command, tmp_path)
    assert (refused.code, refused.error) == (6, "backend_unavailable"), refused
    assert "the role lacks a right" in refused.answer["error"]["message"]
    assert list(tmp_path.iterdir()) == []
    with looking(filled[0], kinds=("TABLES", "SEQUENCES")) as url:
        assert said((url, filled[1]), command, tmp_path).code == 0
