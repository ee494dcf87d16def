"""Reads run folders: ``run.json`` and ``branches/*.json`` of one run each. Writes nothing there."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from lastlight_state.clock import iso_text, iso_time, of_file
from lastlight_state.conversations import runtime, words
from lastlight_state.conversations.arguments import (
    BranchTree,
    NewBranch,
    NewMessage,
    NewSession,
    Provenance,
    Reason,
    SessionTimes,
    SessionTree,
)
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.files.jsonl import files
from lastlight_state.maintenance.imports import brought
from lastlight_state.maintenance.imports.drafts import Draft, Folder
from lastlight_state.maintenance.imports.lenient import decode_json
from lastlight_state.maintenance.imports.pieces import Kind, Read, SourceUnit
from lastlight_state.maintenance.imports.session_trees import piece_of
from lastlight_state.special_files import DIRECTORY, open_binary

MANIFEST, BRANCHES = "run.json", "branches"
#: The largest size of one file, in bytes.
FILE_BYTES = 256 * 1024 * 1024

#: The known fields of a branch file. Its other fields are kept in ``extra``.
_BRANCH = ("id", "name", "user", "created_at", "messages")
_WORDS = {"success": "completed", "error": "failed", "timeout": "timed_out", "canceled": "cancelled"}
_EXITS = {0: "completed", 124: "timed_out", 130: "aborted", 143: "cancelled"}


def found_at(path: Path) -> bool:
    """True if a path is a run folder, or has run folders in it."""
    return _is_run(path) or any(_is_run(one) for one in _folders(path))


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the runs of a folder, the oldest first. Folders without a manifest are ignored."""
    folders = [Path(os.path.abspath(path))] if _is_run(path) else _folders(path)  # noqa: PTH100 - "..", and no link
    for folder in folders:
        yield SourceUnit(os.fsencode(folder.name).decode("utf-8", "backslashreplace"), _reader(folder))


def _reader(folder: Path) -> Read | None:
    return piece_of(partial(_draft, folder)) if _is_run(folder) else None


def _is_run(folder: Path) -> bool:
    return os.path.lexists(folder / MANIFEST)


def _folders(path: Path) -> list[Path]:
    found = [one for one in path.iterdir() if one.is_dir()] if files.is_directory(path) else []
    return sorted(found, key=lambda one: (_change_time(one), os.fsencode(one.name)))


def _change_time(folder: Path) -> float:
    """Return when a folder was changed, in Unix seconds, or 0 if the folder has vanished."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _draft(folder: Path, lenient: bool) -> Draft:
    seen = hashlib.sha256()
    noticed: Counter[str] = Counter()
    adapts = noticed if lenient else None
    manifest = object_in(folder / MANIFEST, MANIFEST, seen, adapts)
    files = sorted(folder.joinpath(BRANCHES).glob("*.json"), key=lambda one: os.fsencode(one.name))
    told = {one["id"]: one for one in _objects(manifest.get("branches")) if isinstance(one.get("id"), str)}
    branches, loose = [], list[NewMessage]()
    for file in files:
        where = f"{BRANCHES}/{file.name}"
        try:
            branch, outside = _branch(where, object_in(file, where, seen, adapts), file.stem, manifest, told, noticed)
        except InvalidValue:
            if not lenient:
                raise
            noticed["branch_unreadable"] += 1
            continue
        branches.append(branch)
        loose += outside
    moments = sorted(_moments([message for branch in branches for message in branch.messages] + loose))
    changed = of_file((folder / MANIFEST).stat().st_mtime_ns)
    times, rough = _times(manifest, moments, changed)
    branches.sort(key=lambda one: moment_of(one.branch.created_at) or changed)
    session = _session(folder, manifest, times, rough, noticed)
    updated = times.updated_at or changed
    last = max(one for one in (times.started_at, moment_of(manifest.get("ended_at")), *moments[-1:]) if one is not None)
    place = Folder(brought.mark(folder.name), iso_text(last), partial(_stands, folder))
    return Draft(SessionTree(session, branches), seen.hexdigest(), updated, tuple(loose), noticed, folder=place)


def _stands(folder: Path, mark: str) -> bool:
    """True if a run folder next to this one has a name with this mark."""
    return any(brought.mark(one.name) == mark and _is_run(one) for one in folder.parent.iterdir())


def object_in(file: Path, where: str, seen: Any, adapts: Counter[str] | None) -> dict[str, Any]:
    """Return the object in a JSON file, and add the file's bytes to the run's digest ``seen``.

    A lenient reader passes ``adapts``, which counts adapted values.
    """
    if file.parent.is_symlink() or not stat.S_ISREG(file.lstat().st_mode):
        raise InvalidValue(where, "must be a file, and no link: what it names may be anybody's")
    size = file.stat().st_size
    if size > FILE_BYTES:
        raise PayloadTooLarge(where, limit=FILE_BYTES, actual=size)
    with open_binary(file) as opened:
        data = opened.read(FILE_BYTES)
    seen.update(f"{len(where)} {where} {len(data)} ".encode("utf-8", "surrogateescape") + data)
    value = decode_json(where, data, adapts)
    if not isinstance(value, dict):
        raise InvalidValue(where, f"expected an object, got {type(value).__name__}")
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _branch(
    where: str,
    data: dict[str, Any],
    stem: str,
    manifest: dict[str, Any],
    told: dict[str, dict[str, Any]],
    noticed: Counter[str],
) -> tuple[BranchTree, list[NewMessage]]:
    """Return a branch with its messages in their order, and the messages that are not in that order."""
    ordered, loose = _messages(where, data.get("messages"), noticed)
    branch_id = data.get("id") or stem
    own = told.get(branch_id, {}) if isinstance(branch_id, str) else {}
    hints = {name: own.get(name) or manifest.get(name) for name in ("provider", "model")}
    new = NewBranch(
        id=branch_id,
        name=own.get("name") or data.get("name"),
        user=data.get("user"),
        created_at=moment_of(data.get("created_at")) or _first(ordered),
        node_metadata={name: value for name, value in hints.items() if value} or None,
        system=next((one for one in ordered if one.role == "system"), None),
        extra=_other_fields(data),
    )
    return BranchTree(new, ordered), loose


def _other_fields(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a branch file that have no equivalent field, each under its own name."""
    pile = data.get("messages")
    told = {name: value for name, value in pile.items() if name != "collections"} if isinstance(pile, dict) else {}
    order = told.pop("progression", None)
    rest = {name: value for name, value in order.items() if name != "order"} if isinstance(order, dict) else {}
    found = {name: value for name, value in data.items() if name not in _BRANCH and value not in (None, {}, [])}
    if rest:
        told["progression"] = rest
    return {**found, **({"messages": told} if told else {})} or None


def _messages(where: str, pile: Any, noticed: Counter[str]) -> tuple[list[NewMessage], list[NewMessage]]:
    given: Any = {} if pile is None else pile
    items = given.get("collections", []) if isinstance(given, dict) else given
    if not isinstance(items, list):
        raise InvalidValue(f"{where}.messages", "expected a list of messages")
    found: dict[str, NewMessage] = {}
    for i, item in enumerate(items):
        here = f"{where}.messages[{i}]"
        one = _message(here, item, noticed)
        if found.setdefault(one.id, one) != one:
            raise InvalidValue(f"{here}.id", f"another message has the id {one.id!r:.80}")
    order = _order(where, given) if isinstance(given, dict) else None
    if order is None:
        return list(found.values()), []
    there = [one for one in order if one in found]
    placed = set(there)
    loose = [message for message_id, message in found.items() if message_id not in placed]
    noticed["order_without_message"] += len(order) - len(there)
    noticed["message_outside_order"] += len(loose)
    return [found[one] for one in there], loose


def _message(where: str, item: Any, noticed: Counter[str]) -> NewMessage:
    """Convert a message of a branch file.

    Times without a zone are UTC. A message without content gets empty content, as the program reads it.
    """
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        raise InvalidValue(f"{where}.id", "must be given")
    if item.get("content") is None:
        noticed["content_missing"] += 1
        item = {**item, "content": {}}
    one = NewMessage(**runtime.message_fields(item, where))
    return replace(one, created_at=moment_of(one.created_at)) if isinstance(one.created_at, datetime) else one


def _order(where: str, pile: dict[str, Any]) -> list[str] | None:
    """Return the order that a branch's messages state, or None if they are ordered as the list is."""
    told = pile.get("progression")
    order = told.get("order") if isinstance(told, dict) else told
    if not order:
        return None
    if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
        raise InvalidValue(f"{where}.messages.progression", "expected a list of ids")
    return order


def _session(
    folder: Path, manifest: dict[str, Any], times: SessionTimes, rough: bool, noticed: Counter[str]
) -> NewSession:
    status, strange = _status(manifest)
    kind = manifest.get("kind")
    known = isinstance(kind, str) and kind.lower() in words.INVOCATION_KINDS
    notes = {"imported_status": strange, "imported_kind": None if known else kind}
    noticed["status_unknown"] += strange is not None
    noticed["started_at_approximate"] += rough
    running = status in (words.RUNNING, "pending")
    return NewSession(
        id=_id(folder, manifest),
        name=manifest.get("name") or kind or "agent",
        provenance=Provenance(
            playbook_name=manifest.get("playbook_name") or manifest.get("playbook"),
            agent_name=manifest.get("agent_name") or manifest.get("agent"),
            invocation_kind=kind.lower() if known else None,  # type: ignore[union-attr]
            artifacts_path=manifest.get("artifact_root") or manifest.get("artifacts_path"),
            source_kind="imported_fs",
        ),
        times=SessionTimes(**{**vars(times), "ended_at": None}) if running else times,
        node_metadata={name: value for name, value in notes.items() if value is not None} or None,
        extra={"manifest": manifest},
        status=status,  # type: ignore[arg-type]
        reason=Reason("legacy.imported", source="system"),
    )


def _id(folder: Path, manifest: dict[str, Any]) -> str:
    """Return the id of a run. If the manifest has an id, a copy of the folder under another name has the same id."""
    told = manifest.get("run_id")
    return told if isinstance(told, str) and valid.is_identifier(told) else folder.name


def _status(manifest: dict[str, Any]) -> tuple[str, str | None]:
    """Return the status of a run. If the source's word for it is unknown, return that word, too."""
    told = manifest.get("status")
    if told is not None:
        return known_status(told)
    code = manifest.get("exit_code")
    return ("completed" if code is None else _EXITS.get(code, "failed") if type(code) is int else "failed"), None


def known_status(told: Any) -> tuple[str, str | None]:
    """Return the status for a status word of the program.

    An unknown word is converted to ``completed``, and is also returned.
    """
    word = str(told).lower()
    status = _WORDS.get(word, word)
    return (status, None) if status in words.STATUSES else ("completed", str(told)[:200])


def _times(manifest: dict[str, Any], moments: list[datetime], changed: datetime) -> tuple[SessionTimes, bool]:
    """Return the times of a run, and True if its start is a guess."""
    told = moment_of(manifest.get("started_at"))
    started = told or (moments[0] if moments else changed)
    ended = moment_of(manifest.get("ended_at"))
    last = moments[-1] if moments else None
    updated = max(one for one in (started, ended, last, changed) if one is not None)
    return SessionTimes(started, updated, started, ended, last), told is None


def _moments(messages: list[NewMessage]) -> Iterator[datetime]:
    for message in messages:
        moment = moment_of(message.created_at)
        if moment is not None:
            yield moment


def _first(messages: list[NewMessage]) -> datetime | None:
    return min(_moments(messages), default=None)


def moment_of(value: Any) -> datetime | None:
    """Return a time given as Unix seconds or ISO text, in UTC if it names no zone. Return None for any other value."""
    try:
        if isinstance(value, str):
            value = iso_time(value)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return None if isinstance(value, bool | None) else datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


#: The kind of source.
KIND = Kind("lionagi-runs", "folders with run.json", found_at, parts, has_ids=True, wants=DIRECTORY)
