from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each

from lastlight_state.backends import connect
from lastlight_state.cli.commands import check as module
from lastlight_state.migrations import scripts
from lastlight_state.settings import Settings
from lastlight_state.testing.databases import Database

COPYING = (
    "INSERT INTO maintenance_receipts (id, kind, state, owner, library_version, started_at, updated_at, policy) "
    "VALUES ('c', 'copy', 'running', 'somebody', '0.1.0', '2026-02-03T12:00:00.000Z', '2026-02-03T12:00:00.000Z', '{}')"
)
NEWER = "UPDATE lastlight_state_version SET version_num = '9999'"
UNREADABLE = "INSERT INTO lastlight_meta (key, value) VALUES ('min_reader', '9000')"

STATES = {
    "current": ([], 0, 0),
    "ahead": ([NEWER], 4, 0),
    "incompatible": ([NEWER, UNREADABLE], 5, 5),
    "foreign": (["UPDATE lastlight_state_version SET version_num = 'abc'"], 1, 1),
    "unreleased": (["UPDATE lastlight_state_version SET version_num = '0016'"], 1, 1),
    "unversioned": (["DROP TABLE lastlight_state_version"], 1, 1),
}
"""How to get there, the exit code of ``check``, and that of commands that need a schema they can work on."""


@pytest.mark.parametrize("state", STATES)
def test_each_state_of_the_schema_has_its_exit_code(state: str, fresh_database: Database) -> None:
    """maintenance OP-72, case 24, migrations MG-67."""
    statements, exit_code, others = STATES[state]
    raw = fresh_database.raw()
    for statement in statements:
        raw.execute(statement)
    said = lastlight_state("check", "--url", fresh_database.url, "--json")
    assert said.code == exit_code
    assert said.data["state"] == state
    assert lastlight_state("current", "--url", fresh_database.url, "--json").data["state"] == state
    assert lastlight_state("ls", "--url", fresh_database.url).code == others
    assert lastlight_state("stats", "--url", fresh_database.url).code == 0


def test_an_unfinished_copy_is_exit_5_everywhere(fresh_database: Database) -> None:
    """maintenance OP-55, OP-72."""
    fresh_database.raw().execute(COPYING)
    checked = lastlight_state("check", "--url", fresh_database.url, "--json")
    listed = lastlight_state("ls", "--url", fresh_database.url, "--json")
    migrated = lastlight_state("migrate", "--url", fresh_database.url, "--json")
    assert (checked.code, listed.code, migrated.code) == (5, 5, 5)
    assert {checked.error, listed.error, migrated.error} == {"unfinished_copy"}


def test_the_plan_says_which_revisions_which_rows_and_which_lock(tmp_path: Path) -> None:
    """migrations MG-60, messaging M-6."""
    url = tmp_path / "old.db"
    lastlight_state("migrate", "--url", url, "--to", "0001")
    said = lastlight_state("check", "--url", url, "--json")
    assert said.code == 3
    assert said.data["revisions"] == [revision for revision in scripts.revisions() if revision > "0001"]
    assert said.data["plan"][0]["rewrites"][0]["table"] == "messaging_sessions"
    assert "lock" in said.data["lock"]
    as_text = lastlight_state("check", "--url", url)
    assert "0 rows of messaging_sessions" in as_text.out
    assert as_text.err.endswith(f"run: lastlight-state migrate --url sqlite:///{url}\n")


def test_migrating_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    """migrations MG-23."""
    url = tmp_path / "new.db"
    first = lastlight_state("migrate", "--url", url, "--json").data
    second = lastlight_state("migrate", "--url", url, "--json").data
    all_of_them, head = list(scripts.revisions()), scripts.head()
    assert first == {
        "state": "current",
        "from": None,
        "to": head,
        "revisions": all_of_them,
        "adopted": False,
        "mended": [],
    }
    assert second == {"state": "current", "from": head, "to": head, "revisions": [], "adopted": False, "mended": []}
    assert lastlight_state("migrate", "--url", url).out == f"nothing to do\n{head}  current\n"


def test_a_migration_that_cannot_get_the_lock_is_exit_6(tmp_path: Path, postgres_url: str) -> None:
    """migrations MG-26, maintenance OP-72."""
    for url in (str(tmp_path / "new.db"), postgres_url):
        with closing(connect(Settings(url=url))) as backend, backend.migration(5):
            said = lastlight_state("migrate", "--url", url, "--lock-timeout", "0", "--json")
        assert said.code == 6
        assert said.error == "backend_busy"


def test_a_schema_is_chosen_by_name_on_postgres(postgres_url: str) -> None:
    """maintenance OP-70, migrations MG-29."""
    words = ("--url", postgres_url, "--schema", 'Ana\'s "own"', "--json")
    assert lastlight_state("migrate", *words).code == 0
    assert lastlight_state("check", *words).code == 0
    assert lastlight_state("ls", "runs", *words).data == {"items": [], "next_page_token": None, "damaged": []}
    assert lastlight_state("stats", *words).data["schema_name"] == 'Ana\'s "own"'
    assert lastlight_state("check", "--url", postgres_url, "--json").data["state"] == "empty"


@with_each("begins", ["missing", "behind"])
def test_a_wait_ends_with_the_migration_of_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """migrations MG-56: of one that is not there yet, too."""
    url, pauses = tmp_path / "new.db", list[float]()
    if begins == "behind":
        lastlight_state("migrate", "--url", url, "--to", "0001")

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            lastlight_state("migrate", "--url", url)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=sleep))
    assert (lastlight_state("check", "--wait", "60", "--url", url).code, len(pauses)) == (0, 2)


@with_each(("begins", "code"), [("missing", 6), ("behind", 3)])
def test_a_wait_is_over_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str, code: int) -> None:
    """migrations MG-56: it looks for the last time when another pause would end later."""
    url, pauses = tmp_path / "new.db", list[float]()
    if begins == "behind":
        lastlight_state("migrate", "--url", url, "--to", "0001")
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
    assert lastlight_state("check", "--wait", "2", "--url", url).code == code
    assert sum(pauses) == 2
