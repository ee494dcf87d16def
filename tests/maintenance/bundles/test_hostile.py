"""Bundles that somebody has made or changed: refused before anything is written."""

from __future__ import annotations

import json
import stat
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.maintenance.changed_bundles import Change, Parts, add, change_row, info, read, tell, write

from lastlight_state import StateStore
from lastlight_state.conversations import NewChunk, NewMessage, NewSession
from lastlight_state.conversations.tables import PROGRESSIONS
from lastlight_state.errors import AlreadyExists, Conflict, StateError
from lastlight_state.maintenance.bundles import row_lines
from lastlight_state.outputs.shapes import BOOKKEEPING
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

RUNS, LOG = "rows/workflow_runs.jsonl", "logs/agent-sessions/projects/-app/s.jsonl"
DAMAGED = "damaged_bundle"


def _row(**values: Any) -> Change:
    """Changes the row of the run."""
    return lambda parts: add(RUNS, json.dumps({**json.loads(parts[RUNS]), **values}).encode() + b"\n", 1)(parts)


#: The columns that every output table has.
_OWN = [asdict(column) for column in BOOKKEEPING]


def _registered(table_name: str = "t", own: Any = _OWN, **column: Any) -> Change:
    """Brings an output table of this name, with one column."""
    row = {
        "key": "k",
        "table_name": table_name,
        "kind": "columns",
        "signature": "s",
        "model_digest": None,
        **dict.fromkeys(("created_at", "updated_at"), "2026-01-05T10:00:00.000Z"),
        "columns": [
            *own,
            {"name": "x", "field": "x", "type": "text", "nullable": True, "primary_key": False, **column},
        ],
    }
    return add("rows/output_tables.jsonl", json.dumps(row).encode() + b"\n", 1)


def _number(parts: Parts) -> None:
    """Brings an output table of numbers, with a row that has none."""
    _registered(type="decimal")(parts)
    add("rows/t.jsonl", b'{"run_id": "run", "node_id": "n", "iteration": 0, "x": "much"}\n', 1)(parts)


#: The codes of the errors that are not for damage.
CODES = {"a newer format": "newer_schema", "a newer schema": "newer_schema", "a status that is none": "unknown_word"}
#: What is changed, and what the error says.
HOSTILE: dict[str, tuple[Change, str]] = {
    "a path that leads out": (add("logs/agent-sessions/projects/../x"), "is not a name of a bundle"),
    "a path that leads out of a table": (add("rows/../../x.jsonl"), "is not a name of a bundle"),
    "an absolute name": (add("/etc/x"), "is not a name of a bundle"),
    "a name with a backslash": (add("logs/agent-sessions/projects/-app/a\\b"), "is not a name of a bundle"),
    "a log of another session": (add(LOG), "does not belong to the run"),
    "a log of a run": (add("logs/sessions/2026/02/03/other.jsonl"), "does not belong to the run"),
    "a name of nothing that bundles have": (add("more.txt"), "is not a name of a bundle"),
    "another content": (
        lambda parts: parts.update({RUNS: parts[RUNS].replace(b'"wf"', b'"WF"')}),
        "is not as it was written",
    ),
    "a part that is not named": (lambda parts: parts.update({LOG: b"{}\n"}), "does not name the parts that are there"),
    "a part that is missing": (lambda parts: parts.pop(RUNS), "does not name the parts that are there"),
    "no manifest": (lambda parts: parts.pop("manifest.json"), "'manifest.json' is missing"),
    "a manifest of another shape": (tell(parts=1), "'manifest.json' cannot be read"),
    "a manifest without a format": (
        lambda parts: parts["manifest.json"].pop("format"),
        "'manifest.json' cannot be read",
    ),
    "a manifest that is no object": (
        lambda parts: parts.update({"manifest.json": [1]}),
        "'manifest.json' cannot be read",
    ),
    "a manifest that is no JSON": (
        lambda parts: parts.update({"manifest.json": float("nan")}),
        "'manifest.json' cannot be read",
    ),
    "a format that is no whole number": (tell(format=1.5), "'manifest.json' cannot be read"),
    "an old format": (tell(format=0), "has an unknown format or kind"),
    "a newer format": (tell(format=2), "the schema version format 2"),
    "a newer schema": (tell(revision="9999"), "the schema version 9999"),
    "an unknown kind": (tell(kind="store"), "has an unknown format or kind"),
    "a table that belongs to no run": (add("rows/tombstones.jsonl", b"{}\n", 1), "is not a table of such a bundle"),
    "an unknown table": (add("rows/none.jsonl", b"{}\n", 1), "is not a table of such a bundle"),
    "a row of another run": (_row(id="other"), "does not belong to the run"),
    "an unknown column": (_row(none=1), "unknown column 'none'"),
    "a time that is none": (_row(started_at="soon"), "started_at: not such a value"),
    "a time of another type": (_row(started_at=1), "started_at: a value of another type"),
    "JSON of another shape": (_row(node_statuses=["soon"]), "node_statuses: JSON of another shape"),
    "a status that is none": (_row(status="foo"), "status is 'foo'"),
    "no number": (_number, "rows/t.jsonl' line 1: x: not such a value"),
    "no status": (_row(status=None), "lacks the column status"),
    "no run": (add(RUNS, b"", 0), "has not the run 'run'"),
    "a number of more than 64 bits": (_row(restart_count=2**63), "restart_count: a value of another type"),
    "a number below those of 64 bits": (_row(restart_count=-(2**63) - 1), "restart_count: a value of another type"),
    "a text that is none": (_row(workflow_name=["wf"]), "workflow_name: a value of another type"),
    "a row without its key": (add(RUNS, b'{"workflow_name": "wf"}\n', 1), "lacks the column id"),
    "a row that is no object": (add(RUNS, b"[]\n", 1), "line 1: expected an object"),
    "a line that is no JSON": (add(RUNS, b"{\n", 1), "line 1: unexpected end of data"),
    "a row without anything": (add(RUNS, b"{}\n", 1), "line 1: expected an object"),
    "an output table with the name of ours": (_registered(table_name="tombstones"), "must not make"),
    "an output table with a name that is none": (_registered(table_name="a b"), "describe an output"),
    "a column with a name that is none": (_registered(name="a b"), "describe an output table: name"),
    "a column of an unknown type": (_registered(type="soup"), "describe an output table"),
    "a column of an unknown shape": (_registered(soup=1), "describe an output table"),
    "an output table without our columns": (_registered(own=()), "describe an output table: Can't create"),
    "an output table without a place for nodes": (
        _registered(own=[column for column in _OWN if column["name"] != "node_id"]),
        "describe an output table: it has no column node_id",
    ),
    "an output table with the name of runs": (_registered(table_name="workflow_runs"), "must not make"),
    "a column without a type": (_registered(type=None), "describe an output table: None"),
    "an output table that is not described": (
        add("rows/output_tables.jsonl", b'{"key": "k", "table_name": "t", "columns": [{"name": "x"}]}\n', 1),
        "lacks the column kind",
    ),
}


#: Rows that are no part of the session of a bundle.
FOREIGN = {
    "a session": ("sessions", {"id": "other"}),
    "a branch": ("branches", {"id": "b", "session_id": "other", "fork_depth": 0}),
    "a transition": ("session_transitions", {"id": "t", "session_id": "other"}),
    "a change": ("session_changes", {"session_id": "other", "seq": 1}),
    "a membership": ("exchange_members", {"channel": "c", "member": "ana"}),
    "an order": ("progressions", {"id": "other"}),
    "a place in an order": ("progression_links", {"progression_id": "other", "ord": 0, "message_id": "m"}),
    "a delivery": ("exchange_deliveries", {"owner": "ana", "ord": 0, "message_id": "m"}),
}


@with_each("case", HOSTILE)
def test_a_hostile_bundle_is_refused_before_any_write(state_store: StateStore, tmp_path: Path, case: str) -> None:
    """maintenance OP-61."""
    change, said = HOSTILE[case]
    parts = _parts(state_store, tmp_path / "good.zip")
    change(parts)
    write(tmp_path / "bad.zip", parts)
    _refused(state_store, tmp_path, said, CODES.get(case, DAMAGED))


@with_each("number", [-(2**63), 2**63 - 1])
def test_a_number_of_64_bits_is_read_to_its_ends(number: int) -> None:
    """maintenance OP-61."""
    assert row_lines.row_of(PROGRESSIONS, b'{"id": "o", "start_ord": %d}' % number) == {"id": "o", "start_ord": number}


def test_a_log_with_a_name_that_no_file_can_have_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: also one of a session that a row names."""
    workflows = state_store.workflows
    workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    workflows.executions.start("wf:x", run_id="run", session_id="s_1")
    state_store.maintenance.bundles.export("run", "run", tmp_path / "good.zip")
    parts = read(tmp_path / "good.zip")
    add("logs/agent-sessions/projects/-app/s_1/raw/" + "x" * 300)(parts)
    write(tmp_path / "bad.zip", parts)
    _refused(state_store, tmp_path, "is not the name of a log")


def test_a_part_with_a_long_name_is_named_by_its_beginning(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    parts, name = _parts(state_store, tmp_path / "good.zip"), "more/" + "x" * 300
    add(name)(parts)
    write(tmp_path / "bad.zip", parts)
    with pytest.raises(Conflict, match=f"damaged: '{name[:200]}' is not") as caught:
        state_store.maintenance.bundles.read(tmp_path / "bad.zip")
    assert vars(caught.value)["part"] == name[:200]


@pytest.mark.parametrize("case", FOREIGN)
def test_a_bundle_of_a_session_brings_nothing_of_others(state_store: StateStore, tmp_path: Path, case: str) -> None:
    """maintenance OP-61."""
    state_store.conversations.sessions.create(NewSession("talk", "n"))
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    parts = read(tmp_path / "good.zip")
    table, row = FOREIGN[case]
    add(f"rows/{table}.jsonl", json.dumps(row).encode() + b"\n", 1)(parts)
    write(tmp_path / "bad.zip", parts)
    _refused(state_store, tmp_path, "line 1: does not belong to the session 'talk'")


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


@with_each(
    ("table", "change", "said"),
    [
        ("branches", {"fork_depth": None}, "lacks the column fork_depth"),
        ("branches", {"fork_depth": "1"}, "fork_depth: a value of another type"),
        ("branches", {"fork_depth": True}, "fork_depth: a value of another type"),
        ("branches", {"fork_depth": 2**63}, "fork_depth: a value of another type"),
        ("messages", {"lion_class": None}, "lacks the column lion_class"),
        ("messages", {"lion_class": 5}, "lion_class: a value of another type"),
        ("messages", {"lion_class": ["x"]}, "lion_class: a value of another type"),
        ("messages", {"content": json.loads("[" * 300 + "]" * 300)}, "nested too deeply"),
        ("messages", {"content": json.loads("[" * 900 + "]" * 900)}, "nested too deeply"),
        ("messages", {"embedding": "zz"}, "embedding: not such a value"),
        ("messages", {"embedding": 1}, "embedding: a value of another type"),
        ("progressions", {"next_ord": "many"}, "next_ord: a value of another type"),
        ("vectors", {"norm": "1"}, "norm: a value of another type"),
        ("vectors", {"norm": True}, "norm: a value of another type"),
        ("vectors", {"norm": None}, "lacks the column norm"),
    ],
)
def test_values_of_another_type_are_refused_before_any_write(
    state_store: StateStore, tmp_path: Path, table: str, change: dict[str, Any], said: str
) -> None:
    """maintenance OP-61."""
    talks = state_store.conversations
    if not talks.sessions.list().items:
        talks.sessions.create(NewSession("talk", "n"))
        talks.branches.append(talks.branches.create("talk").id, [NewMessage("user", "two", id="m")])
        talks.vectors.put("texts", [NewChunk("m", "two", [1.0])])
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    change_row(tmp_path / "good.zip", tmp_path / "bad.zip", table, **change)
    _refused(state_store, tmp_path, said)


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("external_attr", (stat.S_IFLNK | 0o777) << 16, "is not a plain file"),
        ("compress_type", zipfile.ZIP_DEFLATED, "is compressed or encrypted"),
    ],
    ids=("a link", "a bomb"),
)
def test_a_part_that_is_no_plain_file_is_refused(
    state_store: StateStore, tmp_path: Path, attribute: str, value: int, said: str
) -> None:
    """maintenance OP-61."""
    parts = _parts(state_store, tmp_path / "good.zip")
    add(LOG, b"0" * 100_000)(parts)
    write(tmp_path / "bad.zip", parts, LOG, **{attribute: value})
    _refused(state_store, tmp_path, said)


def test_a_name_that_is_there_twice_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    write(tmp_path / "bad.zip", _parts(state_store, tmp_path / "good.zip"))
    with zipfile.ZipFile(tmp_path / "bad.zip", "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr(info(RUNS), b"{}\n")
    _refused(state_store, tmp_path, "is there twice")


def test_a_file_that_is_cut_off_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    _parts(state_store, tmp_path / "good.zip")
    (tmp_path / "bad.zip").write_bytes((tmp_path / "good.zip").read_bytes()[:-30])
    _refused(state_store, tmp_path, "'bad.zip' cannot be read")


def _parts(store: StateStore, file: Path) -> Parts:
    """The parts of a bundle of a run that the store then forgets."""
    if not store.workflows.runs.list().items:
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.maintenance.bundles.export("run", "run", file)
    return read(file)


def _refused(store: StateStore, folder: Path, said: str, code: str = DAMAGED) -> None:
    before = _files(store, folder)
    with pytest.raises(StateError) as caught:
        store.maintenance.bundles.load(folder / "bad.zip")
    assert (caught.value.code, said in str(caught.value)) == (code, True), str(caught.value)
    assert store.receipts.list().items == ()
    assert _files(store, folder) == before


def _files(store: StateStore, folder: Path) -> set[Path]:
    """Return the files of the test and of the store, without those that SQLite makes."""
    assert store.settings.state_dir is not None
    found = (path for root in (folder, Path(store.settings.state_dir)) for path in root.rglob("*"))
    return {path for path in found if "-wal" not in path.name and "-shm" not in path.name}
