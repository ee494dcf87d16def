"""``export``, and ``import`` of what it has written, from the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.between import before
from support.cli.calls import lastlight_state

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.maintenance.bundles.archive import Archive
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


def test_a_session_is_exported_and_imported_elsewhere(database: Database, tmp_path: Path) -> None:
    """maintenance OP-60, OP-61, OP-70, OP-71."""
    with database.open() as store:
        store.conversations.sessions.create(NewSession("talk", "name"))
    file, there = tmp_path / "talk.zip", tmp_path / "there.db"
    StateStore.open(there).close()
    made = lastlight_state("export", "session", "talk", "--out", file, "--url", database.url, "--json")
    assert (made.code, made.data["bundle"]["id"], made.data["bundle"]["format"]) == (0, "talk", 1)
    planned = lastlight_state("import", file, "--url", there, "--dry-run", "--json")
    loaded = lastlight_state("import", file, "--url", there, "--json")
    assert (planned.code, loaded.code) == (0, 0)
    assert (planned.data["rows"], loaded.data["receipt"]["state"]) == (loaded.data["rows"], "done")
    with StateStore.open(there) as store:
        assert store.conversations.sessions.get("talk").name == "name"
    again = lastlight_state("import", file, "--kind", "bundle", "--on-conflict", "skip", "--url", there)
    assert (again.code, "session talk is there already" in again.out) == (0, True)
    as_runs = lastlight_state("import", file, "--kind", "lionagi-runs", "--url", there)
    assert (as_runs.code, "expected a directory, found a regular file" in as_runs.err) == (1, True)


def test_an_export_beside_a_writer_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-60: a file that nobody used is read without locks, and read again when somebody comes."""
    there, file = tmp_path / "here.db", tmp_path / "run.zip"
    with StateStore.open(there) as store:
        run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")

    def cancel() -> None:
        with StateStore.open(there) as other:
            other.workflows.runs.cancel(run.id, by="ana", reason="done")

    happened = before(monkeypatch, Archive, "finish", cancel)
    assert lastlight_state("export", "run", run.id, "--out", file, "--url", there).code == 0
    assert happened == ["finish"]
    loaded = tmp_path / "there.db"
    with StateStore.open(loaded) as store:
        store.maintenance.bundles.load(file)
        assert store.workflows.runs.get(run.id).status == "cancelled"


def test_people_see_what_a_bundle_holds_and_what_was_added(database: Database, tmp_path: Path) -> None:
    """maintenance OP-71."""
    with database.open() as store:
        store.conversations.sessions.create(NewSession("talk", "name"))
    file, there = tmp_path / "talk.zip", tmp_path / "there.db"
    StateStore.open(there).close()
    assert (
        "rows/sessions.jsonl" in lastlight_state("export", "session", "talk", "--out", file, "--url", database.url).out
    )
    assert "dry run: nothing is written" in lastlight_state("import", file, "--url", there, "--dry-run").out
    assert "progressions" in lastlight_state("import", file, "--url", there).out


def test_a_redacted_bundle_is_imported_only_with_the_flag(database: Database, tmp_path: Path) -> None:
    """maintenance OP-60, OP-61, OP-70."""
    with database.open() as store:
        store.conversations.sessions.create(NewSession("talk", "name"))
    file, url = tmp_path / "talk.zip", ("--url", database.url)
    words = ("export", "session", "talk", "--redact", "logs", "--redact", "content", "--out", file)
    assert "without content, logs" in lastlight_state(*words, *url).out
    assert lastlight_state("import", file, *url, "--json").error == "redacted_bundle"
    copied = lastlight_state("import", file, "--allow-redacted", "--on-conflict", "new_ids", *url, "--json")
    with database.open() as store:
        assert store.conversations.sessions.get(copied.data["id"]).name == "name"


def test_people_see_from_what_an_exported_session_was_forked(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-60, OP-71."""
    with sqlite_database.open() as store:
        for session, point in (("talk", None), ("fork", {"parent_branch_id": "of talk", "forked_at_ord": 0})):
            store.conversations.sessions.create(NewSession(session, session))
            store.conversations.branches.create(session, NewBranch(id=f"of {session}", node_metadata=point))
    said = lastlight_state("export", "session", "fork", "--out", tmp_path / "f.zip", "--url", sqlite_database.url)
    assert said.out.splitlines()[-2:] == [
        "sessions that it was forked from: talk",
        "branches that it was forked from: of talk",
    ]


@pytest.mark.timeout(20)
def test_a_pipe_is_no_bundle_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    """maintenance OP-35, OP-61: it is not opened to see what it holds."""
    StateStore.open(tmp_path / "s.db").close()
    os.mkfifo(tmp_path / "pipe")
    assert lastlight_state("import", tmp_path / "pipe", "--url", tmp_path / "s.db", "--json").error == "unknown_source"


def test_wrong_words_of_bundles_are_usage_errors(tmp_path: Path) -> None:
    """maintenance OP-70, OP-72."""
    url = ("--url", tmp_path / "s.db")
    StateStore.open(tmp_path / "s.db").close()
    for words in (
        ("export", "walk", "x", "--out", tmp_path / "x"),
        ("export", "run", "x"),
        ("import", tmp_path, "--kind", "none"),
        ("import", tmp_path, "--kind", "bundle", "--revive"),
        ("import", tmp_path, "--kind", "bundle", "--on-conflict", "replace"),
        ("import", tmp_path, "--kind", "lionagi-runs", "--on-conflict", "skip"),
        ("import", tmp_path, "--kind", "lionagi-runs", "--allow-redacted"),
        ("export", "run", "x", "--out", tmp_path / "x", "--redact", "names"),
    ):
        assert lastlight_state(*words, *url).code == 2, words
    assert lastlight_state("export", "run", "x", "--out", tmp_path / "x", *url, "--json").error == "not_found"
