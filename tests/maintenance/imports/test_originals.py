"""Databases of released versions of the third original program: imported, gone on with by it, imported again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import history
from support.maintenance.originals import BEGIN, VERSIONS, database, grown, ids, named

from lastlight_state import StateStore
from lastlight_state.conversations import NewMessage, SessionPatch
from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database

LIVE, ENDED, BARE = (named(name) for name in ("live", "ended", "bare"))


def _pool(store: Any, session_id: str) -> list[str]:
    pool = store.conversations.sessions.get(session_id).progression_id
    return list(store.conversations.progressions.collection(pool))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_a_released_version_arrives_value_by_value(store: Any, tmp_path: Path, version: str) -> None:
    """maintenance OP-80: the order of all messages and its bookmarks are those of the source, branches or not."""
    done = store.maintenance.imports.run(database(tmp_path / "state.db", version))
    assert (done.units, done.failures) == ({"imported": 3}, ())
    assert done.noticed in ({}, {"projects_left": 1})
    live, ended, bare = (store.conversations.sessions.get(one) for one in (LIVE, ENDED, BARE))
    assert _pool(store, LIVE) == ids("fadbec")
    assert (live.first_msg_id, live.last_msg_id) == tuple(ids("fc"))
    assert (history(store, named("branch-main")), history(store, named("branch-side"))) == (ids("abd"), ids("ea"))
    assert _pool(store, ENDED) == ids("hi")
    assert (ended.first_msg_id, ended.last_msg_id, ended.branch_count) == (*ids("hi"), 0)
    assert (bare.first_msg_id, bare.last_msg_id, bare.status) == (None, None, None)
    assert (live.status, live.playbook_name, live.invocation_kind) == ("running", "book", "flow")
    assert live.node_metadata["pid"] == 7
    pool = store.conversations.progressions.get(live.progression_id)
    assert (pool.id, pool.created_at_unix >= BEGIN + 100) == (named("pool-live"), True)
    said = store.conversations.messages.get_many(ids("abcdef"))
    assert said[named("d")].content == {"assistant_response": "One.\nTwo."}
    assert (list(said[named("d")].embedding), said[named("b")].sender) == ([0.5, -2.0], "ana")
    assert said[named("c")].lion_class.endswith("ActionResponse")
    if version >= "0.27":
        assert (live.artifact_contract, live.artifact_verification) == ({"files": ["a.md"]}, None)
        assert (live.project, live.extra[SOURCE]["model"]) == ("p", "large")
        assert not {name for name in live.extra[SOURCE] if name.startswith("artifact_")}
    if version >= "0.36":
        assert (ended.ended_at_is_approximate, live.ended_at_is_approximate) == (True, False)
        assert "ended_at_is_approximate" not in live.extra[SOURCE]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_import_follows_a_database_that_its_program_goes_on_with(store: Any, tmp_path: Path, version: str) -> None:
    """maintenance OP-36, OP-80: a revised message, orders, bookmarks, fields, the status and its end."""
    source, imports = database(tmp_path / "state.db", version), store.maintenance.imports
    imports.run(source)
    grown(source, version)
    done = imports.run(source)
    assert (done.units, done.failures, done.conflicts) == ({"grown": 1, "unchanged": 2}, (), ())
    live = store.conversations.sessions.get(LIVE)
    assert (_pool(store, LIVE), live.first_msg_id, live.last_msg_id) == (ids("fadbecg"), *ids("fg"))
    assert history(store, named("branch-main")) == ids("abdg")
    answer = store.conversations.messages.get(named("c"))
    assert (answer.content["output"], answer.revision) == (["found"], 1)
    assert (live.name, live.node_metadata["usage"], live.status) == ("named later", {"tokens": 12}, "completed")
    assert live.ended_at.timestamp() == BEGIN + 80
    if version >= "0.27":
        assert live.artifact_verification == {"status": "passed", "missing": []}
        last = next(one for one in store.conversations.lifecycle.history(LIVE).items if one.branch_id is None)
        assert (last.reason_code, last.reason_summary, last.actor) == ("run.completed.ok", "all done", "li")
    assert imports.run(source).units == {"unchanged": 3}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_imported_tree_is_given_back_as_its_program_reads_it(
    every_backend: StateStore, tmp_path: Path, version: str
) -> None:
    """maintenance OP-80, conversations CV-42: columns that no session of the program has stay here."""
    every_backend.maintenance.imports.run(database(tmp_path / "state.db", version))
    given = every_backend.conversations.trees.load(LIVE).to_runtime("db")
    assert given.keys() <= {"id", "created_at", "node_metadata", "branches", "name", "user"}
    branches = given["branches"]
    assert branches["progression"]["order"] == [one["id"] for one in branches["collections"]]
    for one in branches["collections"]:
        assert one.keys() <= {"id", "created_at", "metadata", "name", "user", "messages", "system"}
        assert one["metadata"]["lion_class"] == "lionagi.session.branch.Branch"
        assert {said["id"] for said in one["messages"]["collections"]} == set(one["messages"]["progression"]["order"])


def test_what_was_changed_on_both_sides_stays_and_is_named(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36: as often as the import is run, and what was changed there alone follows."""
    source, imports, talks = database(tmp_path / "state.db"), store.maintenance.imports, store.conversations
    imports.run(source)
    mine = talks.messages.get(named("c"))
    talks.messages.put(NewMessage("action", {"output": "mine"}, id=mine.id, lion_class=mine.lion_class))
    talks.sessions.update(LIVE, SessionPatch(name="my name"))
    talks.branches.append(named("branch-main"), [NewMessage("user", "here", id="here")])
    grown(source)
    for _ in range(2):
        done = imports.run(source)
        kept = {one.kept for one in done.conflicts}
        assert {f"message {named('c')}", f"branch {named('branch-main')}: order of messages"} <= kept
        assert any(one.startswith("session: ") and "name" in one for one in kept)
        assert done.noticed["conflicts"] == len(done.conflicts)
        assert talks.messages.get(named("c")).content == {"output": "mine"}
        assert talks.sessions.get(LIVE).name == "my name"
        assert history(store, named("branch-main")) == [*ids("abd"), "here"]
        assert _pool(store, LIVE) == [*ids("fadbec"), "here", named("g")]
        assert talks.sessions.get(LIVE).status == "completed"
        _touch(source)


def test_the_command_names_what_was_kept(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-36, OP-73."""
    source, store = database(tmp_path / "state.db"), sqlite_database.open()
    store.maintenance.imports.run(source)
    store.conversations.sessions.update(LIVE, SessionPatch(name="my name"))
    grown(source)
    said = lastlight_state("import", source, "--url", sqlite_database.url)
    assert (said.code, "KEPT AS IT IS HERE" in said.out, LIVE in said.out) == (0, True, True)


@pytest.mark.parametrize("kinds", [("first",), ("last",), ("first", "last")])
def test_a_bookmark_outside_the_order_is_kept(store: Any, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """maintenance OP-80: one without a message is counted, and the end of the order stands for it."""
    source = database(tmp_path / "state.db")
    marks = ", ".join(f"{one}_msg_id = '{named('g')}'" for one in kinds)
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("INSERT INTO messages SELECT * FROM (SELECT ?, created_at, node_metadata, content, embedding, "
                    "sender, recipient, channel, role, lion_class FROM messages LIMIT 1)", [named("g")])  # fmt: skip
        raw.execute(f"UPDATE sessions SET {marks} WHERE id = ?", [LIVE])
        raw.execute("UPDATE sessions SET first_msg_id = 'gone' WHERE id = ?", [ENDED])
    done = store.maintenance.imports.run(source)
    assert done.noticed == {"bookmark_missing": 1, "projects_left": 1}
    live = store.conversations.sessions.get(LIVE)
    wanted = {"first": named("f"), "last": named("c")} | dict.fromkeys(kinds, named("g"))
    assert {"first": live.first_msg_id, "last": live.last_msg_id} == wanted
    assert _pool(store, LIVE) == ids("fadbec")
    assert store.conversations.sessions.get(ENDED).first_msg_id == named("h")


def test_an_order_that_the_source_replaced_is_replaced_here(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36: of all messages and of a branch, unless it was changed here."""
    source, imports = database(tmp_path / "state.db"), store.maintenance.imports
    imports.run(source)
    _set_order(source, "pool-live", "cebdaf")
    _set_order(source, "main", "bad")
    _set_order(source, "pool-ended", "ih")
    done = imports.run(source)
    assert (done.units, done.failures, done.conflicts) == ({"grown": 2, "unchanged": 1}, (), ())
    assert (_pool(store, LIVE), history(store, named("branch-main"))) == (ids("cebdaf"), ids("bad"))
    assert _pool(store, ENDED) == ids("ih")
    pool = store.conversations.sessions.get(ENDED).progression_id
    store.conversations.progressions.replace(pool, ids("h"), expect_version=_version(store, pool))
    _set_order(source, "pool-ended", "hi")
    _set_order(source, "pool-ended", "ihi")
    done = imports.run(source)
    assert (ENDED, "session: order of messages") in [(one.unit, one.kept) for one in done.conflicts]
    assert _pool(store, ENDED) == ids("hi")


def test_a_message_that_was_redacted_here_is_not_filled_again(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36: it was changed here."""
    source, imports = database(tmp_path / "state.db"), store.maintenance.imports
    imports.run(source)
    store.maintenance.redact.run(RedactPolicy(message_ids=ids("h")))
    emptied = store.conversations.messages.get(named("h"))
    assert emptied.revision == 1
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("UPDATE messages SET content = '{}' WHERE id = ?", ids("h"))
    assert [one.kept for one in imports.run(source).conflicts] == [f"message {named('h')}"]
    assert store.conversations.messages.get(named("h")) == emptied


def _set_order(source: Path, name: str, names: str) -> None:
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("UPDATE progressions SET collection = ? WHERE id = ?", [json.dumps(ids(names)), named(name)])


def _version(store: Any, progression_id: str) -> int:
    return int(store.conversations.progressions.get(progression_id).version)


def _touch(source: Path) -> None:
    """Change something of the source, so that its session is looked at again."""
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("UPDATE sessions SET updated_at = updated_at + 1")


def test_a_table_that_cannot_be_read_fails_alone(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-35: the sessions are imported, and the table is named."""
    source = database(tmp_path / "state.db")
    with closing(sqlite3.connect(source)) as raw:
        raw.execute("INSERT INTO admin_events VALUES ('e', 1.0, 'prune', NULL, '{}', 'ana')")
        raw.commit()
        pages = raw.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'admin_events'").fetchall()
        [(size,)] = raw.execute("PRAGMA page_size").fetchall()
    data = bytearray(source.read_bytes())
    for (page,) in pages:
        data[(page - 1) * size : page * size] = b"\xff" * size
    source.write_bytes(data)
    done = sqlite_database.open().maintenance.imports.run(source)
    assert done.units["imported"] == 3
    assert [(one.unit, one.code) for one in done.failures] == [("admin_events", "damaged_source")]
