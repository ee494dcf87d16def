"""Bundles whose bytes were changed are refused with a name, whatever the change does to the ZIP."""

from __future__ import annotations

import random
import struct
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue, StateError
from lastlight_state.maintenance.bundles.archive import open_bundle
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

CENTRAL, LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_TRIES = 1_500
_MORE_THAN_BUFFERED = 200_000


@pytest.mark.parametrize(("head", "flags", "name"), [(CENTRAL, 8, 46), (LOCAL, 6, 30)], ids=("central", "local"))
def test_a_name_that_is_no_utf_8_is_refused(
    state_store: StateStore, tmp_path: Path, head: bytes, flags: int, name: int
) -> None:
    """maintenance OP-61."""
    content = bytearray(_bundle(state_store, tmp_path))
    at = content.find(head)
    content[at + flags : at + flags + 2] = struct.pack("<H", 0x800)
    content[at + name] = 0xFF
    assert _code(state_store, tmp_path, content) == "damaged_bundle"


#: What the directory of a ZIP says of its first file: where that stands in its entry, how it is written, the new value.
TOLD: dict[str, tuple[tuple[Any, ...], str]] = {
    "encryption": ((8, "<H", 1), "is compressed or encrypted"),
    "compression": ((10, "<H", zipfile.ZIP_DEFLATED), "is compressed or encrypted"),
    "another size when unpacked": ((24, "<I", 10), "is compressed or encrypted"),
    "more bytes than the file has": ((20, "<II", 2**30, 2**30), "parts are larger than their file"),
    "a place outside of the file": ((42, "<I", 2**30), "cannot be read"),
    "no plain file": ((38, "<I", 0), "is not a plain file"),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_directory_that_does_not_tell_the_truth_is_refused(
    state_store: StateStore, tmp_path: Path, case: str
) -> None:
    """maintenance OP-61: nothing is unpacked that it has not room for."""
    (offset, form, *values), said = TOLD[case]
    content = bytearray(_bundle(state_store, tmp_path))
    struct.pack_into(form, content, content.find(CENTRAL) + offset, *values)
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(Conflict, match=said) as caught:
        state_store.maintenance.bundles.read(tmp_path / "bad.zip")
    assert caught.value.code == "damaged_bundle"


def test_a_name_that_ends_early_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: what stands behind a NUL is not looked at, and may be anything."""
    content = _bundle(state_store, tmp_path)
    name = b"rows/workflow_runs.jsonl"
    (tmp_path / "bad.zip").write_bytes(content.replace(b"rows/run_transitions.jsonl", name + b"\0x"))
    with pytest.raises(Conflict, match="is not a name of a bundle"):
        state_store.maintenance.bundles.read(tmp_path / "bad.zip")


def test_a_manifest_past_the_limit_is_refused(
    state_store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61."""
    opening = import_module(open_bundle.__module__)
    _bundle(state_store, tmp_path)
    with zipfile.ZipFile(tmp_path / "good.zip") as packed:
        size = packed.getinfo("manifest.json").file_size
    monkeypatch.setattr(opening, "_MANIFEST_BYTES", size)
    assert state_store.maintenance.bundles.read(tmp_path / "good.zip").id == "run"
    monkeypatch.setattr(opening, "_MANIFEST_BYTES", size - 1)
    with pytest.raises(Conflict, match="is missing or too large"):
        state_store.maintenance.bundles.read(tmp_path / "good.zip")


def test_changed_bytes_never_raise_an_error_without_a_name(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    good = _bundle(state_store, tmp_path)
    drawn, directory = random.Random(2026), good.find(CENTRAL)
    found = set()
    for _ in range(_TRIES):
        content = bytearray(good)
        for _ in range(drawn.choice((1, 2, 4))):
            first = drawn.choice((0, directory, len(good) - 100))
            content[drawn.randrange(first, len(good))] = drawn.choice((0, 128, 255, drawn.randrange(256)))
        found.add(_code(state_store, tmp_path, content))
    assert found <= {None, "damaged_bundle", "newer_schema"}


def test_a_file_that_is_changed_after_it_was_verified_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    good = _bundle(state_store, tmp_path, {"text": "x" * _MORE_THAN_BUFFERED})
    with pytest.raises(StateError) as caught:
        _read_while_changed(tmp_path / "good.zip", good.replace(b"xxx", b"yyy"))
    assert caught.value.code == "damaged_bundle"


def test_a_file_that_is_cut_after_it_was_verified_is_refused(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    good = _bundle(state_store, tmp_path, {"text": "x" * _MORE_THAN_BUFFERED})
    with pytest.raises(StateError) as caught:
        _read_while_changed(tmp_path / "good.zip", good[: good.index(b"xxx") + 100])
    assert caught.value.code == "damaged_bundle"


@pytest.mark.parametrize("dest", ["a\0b", "\ud800"])
def test_a_path_that_no_file_can_have_is_no_place_for_a_bundle(state_store: StateStore, dest: str) -> None:
    """maintenance OP-60."""
    with pytest.raises(InvalidValue):
        state_store.maintenance.bundles.export("run", "run", dest)


def _read_while_changed(file: Path, content: bytes) -> None:
    with open_bundle(file) as found:
        file.write_bytes(content)
        list(found.lines(found.tables["workflow_runs"]))


def _bundle(store: StateStore, folder: Path, context: dict[str, str] | None = None) -> bytes:
    store.workflows.runs.create(
        "wf", trigger=Trigger("t"), phase="p", context=context or {}, options=RunOptions(id="run")
    )
    store.maintenance.bundles.export("run", "run", folder / "good.zip")
    return (folder / "good.zip").read_bytes()


def _code(store: StateStore, folder: Path, content: bytes | bytearray) -> str | None:
    """The code of the error with which these bytes are refused; None if they are read."""
    (folder / "bad.zip").write_bytes(content)
    try:
        store.maintenance.bundles.read(folder / "bad.zip")
    except StateError as error:
        return error.code
    return None
