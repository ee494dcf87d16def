"""Bundles that somebody has made or changed: refused before anything is written."""

from __future__ import annotations

import json
import stat
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.changed_bundles import Change, Parts, add, change_row, info, read, tell, write

from lastlight_state import StateStore
from lastlight_state.conversations import NewMessage, NewSession
from lastlight_state.errors import AlreadyExists, StateError
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

RUNS, LOG = "rows/workflow_runs.jsonl", "logs/agent-sessions/projects/-app/s.jsonl"


def _row(**values: Any) -> Change:
    """Changes the row of the run."""
    return lambda parts: add(RUNS, json.dumps({**json.loads(parts[RUNS]), **values}).encode() + b"\n", 1)(parts)


HOSTILE: dict[str, tuple[Change, str]] = {
    "a path that leads out": (add("logs/agent-sessions/projects/../x"), "damaged_bundle"),
    "a path that leads out of a table": (add("rows/../../x.jsonl"), "damaged_bundle"),
    "an absolute name": (add("/etc/x"), "damaged_bundle"),
    "a name with a backslash": (add("logs/agent-sessions/projects/-app/a\\b"), "damaged_bundle"),
    "a name that no file can have": (add("logs/agent-sessions/projects/-app/" + "x" * 300), "damaged_bundle"),
    "a log of another session": (add(LOG), "damaged_bundle"),
    "a log of a run": (add("logs/sessions/2026/02/03/other.jsonl"), "damaged_bundle"),
    "a name of nothing that bundles have": (add("more.txt"), "damaged_bundle"),
    "another content": (lambda parts: parts.update({RUNS: parts[RUNS].replace(b'"wf"', b'"WF"')}), "damaged_bundle"),
    "a part that is not named": (lambda parts: parts.update({LOG: b"{}\n"}), "damaged_bundle"),
    "a part that is missing": (lambda parts: parts.pop(RUNS), "damaged_bundle"),
    "no manifest": (lambda parts: parts.pop("manifest.json"), "damaged_bundle"),
    "a manifest of another shape": (tell(parts=1), "damaged_bundle"),
    "an old format": (tell(format=0), "damaged_bundle"),
    "a newer format": (tell(format=2), "newer_schema"),
    "a newer schema": (tell(revision="9999"), "newer_schema"),
    "an unknown kind": (tell(kind="store"), "damaged_bundle"),
    "a table that belongs to no run": (add("rows/tombstones.jsonl", b"{}\n", 1), "damaged_bundle"),
    "an unknown table": (add("rows/none.jsonl", b"{}\n", 1), "damaged_bundle"),
    "a row of another run": (_row(id="other"), "damaged_bundle"),
    "an unknown column": (_row(none=1), "damaged_bundle"),
    "a time that is none": (_row(started_at="soon"), "damaged_bundle"),
    "a time of another type": (_row(started_at=1), "damaged_bundle"),
    "JSON of another shape": (_row(node_statuses=["soon"]), "damaged_bundle"),
    "a status that is none": (_row(status="foo"), "unknown_word"),
    "no status": (_row(status=None), "damaged_bundle"),
    "no run": (add(RUNS, b"", 0), "damaged_bundle"),
    "a number of more than 64 bits": (_row(restart_count=2**63), "damaged_bundle"),
    "a number below those of 64 bits": (_row(restart_count=-(2**63) - 1), "damaged_bundle"),
    "a text that is none": (_row(workflow_name=["wf"]), "damaged_bundle"),
    "a row without its key": (add(RUNS, b'{"workflow_name": "wf"}\n', 1), "damaged_bundle"),
    "a row that is no object": (add(RUNS, b"[]\n", 1), "damaged_bundle"),
    "a line that is no JSON": (add(RUNS, b"{\n", 1), "damaged_bundle"),
    "an output table with the name of ours": (
        add("rows/output_tables.jsonl", b'{"key": "k", "table_name": "tombstones", "kind": "columns", '
             b'"signature": "s", "model_digest": null, "created_at": null, "updated_at": null, "columns": []}\n', 1),
        "damaged_bundle",
    ),
    "an output table that is not described": (
        add("rows/output_tables.jsonl", b'{"key": "k", "table_name": "t", "columns": [{"name": "x"}]}\n', 1),
        "damaged_bundle",
    ),
}  # fmt: skip


#: Rows that are no part of the session of a bundle.
FOREIGN = {
    "a session": ("sessions", {"id": "other"}),
    "a branch": ("branches", {"id": "b", "session_id": "other"}),
    "a transition": ("session_transitions", {"id": "t", "session_id": "other"}),
    "a change": ("session_changes", {"session_id": "other", "seq": 1}),
    "a membership": ("exchange_members", {"channel": "c", "member": "ana"}),
    "an order": ("progressions", {"id": "other"}),
    "a place in an order": ("progression_links", {"progression_id": "other", "ord": 0, "message_id": "m"}),
    "a delivery": ("exchange_deliveries", {"owner": "ana", "ord": 0, "message_id": "m"}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_bundle_is_refused_before_any_write(state_store: StateStore, tmp_path: Path, case: str) -> None:
    """maintenance OP-61."""
    change, code = HOSTILE[case]
    parts = _parts(state_store, tmp_path / "good.zip")
    change(parts)
    write(tmp_path / "bad.zip", parts)
    _refused(state_store, tmp_path, code)


@pytest.mark.parametrize("case", FOREIGN)
def test_a_bundle_of_a_session_brings_nothing_of_others(state_store: StateStore, tmp_path: Path, case: str) -> None:
    """maintenance OP-61."""
    state_store.conversations.sessions.create(NewSession("talk", "n"))
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    parts = read(tmp_path / "good.zip")
    table, row = FOREIGN[case]
    add(f"rows/{table}.jsonl", json.dumps(row).encode() + b"\n", 1)(parts)
    write(tmp_path / "bad.zip", parts)
    _refused(state_store, tmp_path, "damaged_bundle")


@pytest.mark.parametrize("on_conflict", ["refuse", "skip"])
def test_a_bundle_adds_nothing_to_an_order_that_is_stored(
    state_store: StateStore, tmp_path: Path, on_conflict: Any
) -> None:
    """maintenance OP-61: a branch that claims another one's order, with a message at the next place of it."""
    talks = state_store.conversations
    talks.sessions.create(NewSession("victim", "n"))
    victim = talks.branches.create("victim")
    talks.branches.append(victim.id, [NewMessage("user", "one")])
    talks.sessions.create(NewSession("talk", "n"))
    talks.branches.append(talks.branches.create("talk").id, [NewMessage("user", "two", id="m")])
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    parts = read(tmp_path / "good.zip")
    order = talks.progressions.get(victim.progression_id)
    own = json.loads(parts["rows/progressions.jsonl"].splitlines()[0])
    branch = {**json.loads(parts["rows/branches.jsonl"].splitlines()[0]), "id": "b", "progression_id": order.id}
    stored = {**own, "id": order.id, "next_ord": order.next_ord, "start_ord": order.start_ord}
    link = {**json.loads(parts["rows/progression_links.jsonl"].splitlines()[0]), "progression_id": order.id}
    for table, row in {"branches": branch, "progressions": stored, "progression_links": {**link, "ord": 1}}.items():
        name = f"rows/{table}.jsonl"
        lines = [*parts[name].splitlines(keepends=True), json.dumps(row).encode() + b"\n"]
        add(name, b"".join(lines), len(lines))(parts)
    write(tmp_path / "bad.zip", parts)
    with suppress(AlreadyExists):
        state_store.maintenance.bundles.load(tmp_path / "bad.zip", on_conflict=on_conflict)
    talks.branches.append(victim.id, [NewMessage("user", "three")])
    assert [one.message.content for one in talks.branches.tail(victim.id)] == ["one", "three"]


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("branches", {"fork_depth": None}),
        ("branches", {"fork_depth": "1"}),
        ("branches", {"fork_depth": True}),
        ("branches", {"fork_depth": 2**63}),
        ("messages", {"lion_class": None}),
        ("messages", {"lion_class": 5}),
        ("messages", {"lion_class": ["x"]}),
        ("messages", {"content": json.loads("[" * 300 + "]" * 300)}),
        ("progressions", {"next_ord": "many"}),
    ],
)
def test_values_of_another_type_are_refused_before_any_write(
    state_store: StateStore, tmp_path: Path, table: str, change: dict[str, Any]
) -> None:
    """maintenance OP-61."""
    talks = state_store.conversations
    talks.sessions.create(NewSession("talk", "n"))
    talks.branches.append(talks.branches.create("talk").id, [NewMessage("user", "two")])
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    change_row(tmp_path / "good.zip", tmp_path / "bad.zip", table, **change)
    _refused(state_store, tmp_path, "damaged_bundle")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("external_attr", (stat.S_IFLNK | 0o777) << 16), ("compress_type", zipfile.ZIP_DEFLATED)],
    ids=("a link", "a bomb"),
)
def test_a_part_that_is_no_plain_file_is_refused(
    state_store: StateStore, tmp_path: Path, attribute: str, value: int
) -> None:
    """maintenance OP-61."""
    parts = _parts(state_store, tmp_path / "good.zip")
    add(LOG, b"0" * 100_000)(parts)
    write(tmp_path / "bad.zip", parts, LOG, **{attribute: value})
    _refused(state_store, tmp_path, "damaged_bundle")


def test_a_name_that_is_there_twice_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    write(tmp_path / "bad.zip", _parts(state_store, tmp_path / "good.zip"))
    with zipfile.ZipFile(tmp_path / "bad.zip", "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr(info(RUNS), b"{}\n")
    _refused(state_store, tmp_path, "damaged_bundle")


def test_a_file_that_is_cut_off_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    _parts(state_store, tmp_path / "good.zip")
    (tmp_path / "bad.zip").write_bytes((tmp_path / "good.zip").read_bytes()[:-30])
    _refused(state_store, tmp_path, "damaged_bundle")


def _parts(store: StateStore, file: Path) -> Parts:
    """The parts of a bundle of a run that the store then forgets."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.maintenance.bundles.export("run", "run", file)
    return read(file)


def _refused(store: StateStore, folder: Path, code: str) -> None:
    before = {path for path in folder.rglob("*") if "-wal" not in path.name and "-shm" not in path.name}
    with pytest.raises(StateError) as caught:
        store.maintenance.bundles.load(folder / "bad.zip")
    assert caught.value.code == code
    assert store.receipts.list().items == ()
    assert {path for path in folder.rglob("*") if "-wal" not in path.name and "-shm" not in path.name} == before
