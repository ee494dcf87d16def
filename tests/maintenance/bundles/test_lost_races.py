"""Somebody comes in between the look of `Bundles.load` and what `Bundles._store_rows` writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.between import before

from lastlight_state import StateStore
from lastlight_state.conversations import NewSession
from lastlight_state.errors import (
    AlreadyExists,
    BackendBusy,
    BackendUnavailable,
    Conflict,
    CorruptData,
    InvalidValue,
    StateError,
)
from lastlight_state.maintenance.bundles import archive, row_lines, selection
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.receipts import Receipts
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions


def _exported(store: StateStore, file: Path) -> Path:
    """The place of an agent's log, which is in the bundle of a run and is gone here."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.workflows.executions.start("wf:y", run_id="run", session_id="s_1", options=ExecutionOptions(id="y"))
    log = store.settings.agent_sessions / "projects/-app/s_1.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("{}\n")
    assert len(store.maintenance.bundles.export("run", "run", file).parts) == 4
    log.unlink()
    return log


def test_a_load_that_fails_leaves_nothing(database: Database, tmp_path: Path) -> None:
    """maintenance OP-61: a row that changes after the look, and the files that were written before it."""
    store, other = database.open(), database.open()
    log = _exported(store, tmp_path / "run.zip")
    with racing(store) as race:
        race.before_unit(3, lambda: other.workflows.runs.merge_scratch("run", {"a": 1}))
        with pytest.raises(AlreadyExists):
            store.maintenance.bundles.load(tmp_path / "run.zip")
    assert (race.left, list(log.parent.iterdir())) == (0, [])
    assert [one.state for one in store.receipts.list().items] == ["failed"]


def test_a_refused_load_whose_receipt_cannot_say_so_tells_of_the_refusal(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61: and not of the receipt, which is interrupted then."""
    store, other = database.open(), database.open()
    _exported(store, tmp_path / "run.zip")

    def unreachable() -> None:
        raise BackendUnavailable("gone for a moment")

    with racing(store) as race:
        race.before_unit(3, lambda: other.workflows.runs.merge_scratch("run", {"a": 1}))
        before(monkeypatch, Receipts, "finish", unreachable)
        with pytest.raises(AlreadyExists):
            store.maintenance.bundles.load(tmp_path / "run.zip")
    assert race.left == 0
    assert [one.state for one in store.receipts.list().items] == ["interrupted"]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (partial(BackendUnavailable, "lost"), "interrupted"),
        (partial(Conflict, "lost"), "failed"),
        (partial(InvalidValue, "lost", "is no value"), "failed"),
        (partial(CorruptData, "lost", "talk", "name"), "failed"),
    ],
    ids=("unavailable", "conflict", "invalid", "corrupt"),
)
def test_a_load_that_the_database_did_not_end_is_done_by_the_same_command(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], StateError], state: str
) -> None:
    """maintenance OP-61: its receipt is no failure, which is what the database refuses."""
    store = database.open()
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        source.conversations.sessions.create(NewSession("talk"))
        source.maintenance.bundles.export("session", "talk", tmp_path / "talk.zip")

    def fail() -> None:
        raise error()

    happened = before(monkeypatch, row_merge, "_insert", fail)
    with pytest.raises(type(error()), match="lost") as caught:
        store.maintenance.bundles.load(tmp_path / "talk.zip")
    told = ["interrupted; to go on: the same command"] if state == "interrupted" else []
    assert (getattr(caught.value, "__notes__", []), happened) == (told, ["_insert"])
    assert [one.state for one in store.receipts.list()] == [state]
    assert store.maintenance.bundles.load(tmp_path / "talk.zip").rows["sessions"] == 1


def test_a_row_that_appears_before_it_is_inserted_is_compared(
    postgres_database: Database, state_store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61: on SQLite nobody else writes between them."""
    state_store.conversations.sessions.create(NewSession("talk", "mine"))
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "talk.zip")
    store, other = postgres_database.open(), postgres_database.open()
    create = other.conversations.sessions.create
    happened = before(monkeypatch, row_merge, "_insert", lambda: create(NewSession("talk", "theirs")))
    with pytest.raises(AlreadyExists) as caught:
        store.maintenance.bundles.load(tmp_path / "talk.zip")
    assert (happened, caught.value.kind, caught.value.key) == (["_insert"], "sessions", "talk")
    assert store.conversations.sessions.get("talk").name == "theirs"


def test_a_file_that_appears_during_an_export_stays(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-60: the export is refused, and nothing of it is left."""
    store, place = database.open(), tmp_path / "out" / "run.zip"
    place.parent.mkdir()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    happened = before(monkeypatch, archive, "link", lambda: place.write_text("mine"))
    with pytest.raises(AlreadyExists) as caught:
        store.maintenance.bundles.export("run", "run", place)
    assert (happened, caught.value.kind, caught.value.key) == (["link"], "file", str(place))
    assert (list(place.parent.iterdir()), place.read_text()) == ([place], "mine")


def test_an_export_that_is_begun_again_has_nothing_of_the_first_attempt(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-60: the database was busy, and the run was larger then."""
    store, other = database.open(), database.open()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.workflows.runs.merge_scratch("run", {"a": "long " * 1_000})

    def shrink() -> None:
        other.workflows.runs.merge_scratch("run", {"a": None})
        raise BackendBusy("locked")

    happened = before(monkeypatch, selection, "refuse_unregistered", shrink)
    for name in ("twice.zip", "once.zip"):
        store.maintenance.bundles.export("run", "run", tmp_path / name)
    assert happened
    assert (tmp_path / "twice.zip").read_bytes() == (tmp_path / "once.zip").read_bytes()


def test_a_log_that_appears_after_the_rows_were_stored_stays(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61: the load is refused by the name of the log, and leaves no unfinished file."""
    store = database.open()
    log = _exported(store, tmp_path / "run.zip")
    happened = before(monkeypatch, row_lines, "put", lambda: log.write_text("mine"))
    with pytest.raises(AlreadyExists) as caught:
        store.maintenance.bundles.load(tmp_path / "run.zip")
    assert (happened, caught.value.kind, caught.value.key) == (["put"], "file", str(log))
    assert (list(log.parent.iterdir()), log.read_text()) == ([log], "mine")
