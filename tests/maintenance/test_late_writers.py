"""Writers that come late: what was removed meanwhile is not made again by what they add to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.hostile import Call, mailbox_methods, methods, taken
from support.hostile_rows import KNOWN, fill

from lastlight_state.errors import UnsavedEvents
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.journal import LineFileMirror
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.store import StateStore

GONE = "gone-with-its-rows"
#: Names of arguments by which a call adds to something that another call has made.
PARENTS = (
    "run_id", "run_ids", "parent_run_id", "session_id", "branch_id", "parent_branch_id", "progression_id",
    "approval_id", "request_id", "execution_id", "fire_id", "message_id", "message_ids", "receipt_id", "plan_id",
)  # fmt: skip
#: Arguments of calls that follow or wait for something, and write nothing.
WAITING = frozenset({"timeout", "stop", "idle_timeout"})
#: Calls that make what they name, under the id of their caller.
MAKING = frozenset({"messaging.sessions.create"})


def late(store: StateStore) -> list[Call]:
    """Return every call that names something by its id, with ids of what is gone."""
    known = {**KNOWN, **{name: [GONE] if name.endswith("s") else GONE for name in PARENTS}}
    found = []
    for path, method in methods(store):
        hints, plain = taken(method, known)
        named = {name: known[name] for name in hints if name in PARENTS}
        if path not in MAKING and (named or GONE in repr(plain)) and not WAITING & hints.keys():
            found.append(Call(path, {**plain, **named}, "", 0))
    return found


def naming_what_is_gone(store: StateStore) -> list[str]:
    """Return the tables with rows that name it."""
    with store.view() as view:
        scope: Any = view._context.scope
        connection = scope.unit.backend.connection(scope.unit)
        return [one.name for one in METADATA.sorted_tables if GONE in repr(connection.execute(one.select()).all())]


def test_no_call_makes_what_it_adds_to(every_backend: StateStore) -> None:
    """maintenance M-102: by the id of a run, a session, a branch or a question that a prune has removed."""
    fill(every_backend)
    made = late(every_backend)
    told = [call.on(every_backend)[0] for call in made]
    assert naming_what_is_gone(every_backend) == []
    assert not [call.path for call, word in zip(made, told, strict=True) if word.startswith("!")]
    assert told.count("NotFound") > 100


def test_a_queued_event_of_a_run_that_went_is_handed_back(every_backend: StateStore, tmp_path: Path) -> None:
    """maintenance M-102: and its file is not made either."""
    store = every_backend
    writer = store.journal.writer(mirrors=[LineFileMirror(store.journal.events, tmp_path / "mirror")])
    writer.append(GONE, "late")
    with pytest.raises(UnsavedEvents):
        writer.close()
    assert naming_what_is_gone(store) == []
    assert not (tmp_path / "mirror").exists()


def test_no_side_of_a_removed_mailbox_makes_it_again(tmp_path: Path) -> None:
    """maintenance M-102: both sides were open when the folder went, and every call of them is made."""
    boxes = Mailboxes(tmp_path)
    boxes.create("g", "s")
    verbs = [*mailbox_methods(boxes, "g", "s")]
    host, agent = boxes.host("g", "s"), boxes.agent("g", "s")
    shutil.rmtree(tmp_path / "g" / "s")
    told = []
    for path, method in verbs:
        side, _, rest = path.partition(".")
        hints, plain = taken(method, KNOWN)
        if rest and not WAITING & hints.keys():
            told.append((path, Call(rest, plain, "", 0).on(host if side == "host" else agent)))
            assert not (tmp_path / "g" / "s").exists(), path
    assert sum(word in ("NotFound", "BackendUnavailable") for _, (word, _) in told) > 20, told
    assert not [one for one in told if one[1][0].startswith("!")]
