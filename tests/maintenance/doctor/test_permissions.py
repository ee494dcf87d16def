"""DOC-05 finds files that others may use, owners that are others, and links, and touches nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import files_of

from lastlight_state import StateStore
from lastlight_state.backends import connect
from lastlight_state.files.agent_log import Cwd
from lastlight_state.files.mailbox import Attachment
from lastlight_state.maintenance import Finding


@pytest.fixture
def store(state_store: StateStore) -> StateStore:
    """A store with a write-ahead log, a line file, and a mailbox that has an attachment."""
    state_store.conversations.progressions.create()
    with state_store.agent_log.writer.open(place=Cwd("/work"), session_id="s", prompt="x") as log:
        log.feed({"type": "session", "id": "s"})
    host = state_store.mailbox.create("group", "session")
    host.inbox.send(kind="chat", content={"text": "x"}, attachments=[Attachment("notes.txt", b"x")])
    state_store.mailbox.agent("group", "session").beat()
    return state_store


def _found(store: StateStore, **changed: Any) -> list[Finding]:
    """What a look finds that has other settings, or none."""
    settings = store.settings.model_copy(update=changed)
    with StateStore(connect(settings), settings) as looking:
        return list(looking.maintenance.doctor.examine(only=["DOC-05"]).findings)


def _database(store: StateStore) -> Path:
    return store.backend.files[0]


def _write_ahead_log(store: StateStore) -> Path:
    return store.backend.files[1]


def _line_file(store: StateStore) -> Path:
    [path] = store.settings.agent_sessions.rglob("*.jsonl")
    return path


def _session(store: StateStore) -> Path:
    return store.settings.mailboxes / "group" / "session"


def _attachment(store: StateStore) -> Path:
    [path] = _session(store).rglob("notes.txt")
    return path


Place = tuple[str, Callable[[StateStore], Path]]

#: What may be reached through a link of the operator's, by the subject of its finding.
ABOVE: list[Place] = [
    ("database", _database),
    ("line files", lambda store: store.settings.agent_sessions),
    ("mailboxes", lambda store: store.settings.mailboxes),
]
#: Where no link may stand.
BELOW: list[Place] = [
    ("database", _write_ahead_log),
    ("line files", _line_file),
    ("line files", lambda store: _line_file(store).parent),
    ("mailboxes", lambda store: _session(store).parent),
    ("mailboxes", _session),
    ("mailboxes", lambda store: _session(store) / "inbound.db"),
    ("mailboxes", lambda store: _session(store) / "outbound.db"),
    ("mailboxes", lambda store: _session(store) / ".heartbeat"),
    ("mailboxes", lambda store: _session(store) / "outbox"),
    ("mailboxes", lambda store: _attachment(store).parent),
    ("mailboxes", _attachment),
]


def test_what_others_may_use_is_told_and_the_remedy_mends_it(store: StateStore) -> None:
    """maintenance OP-15, OP-88: whether they may read or only write."""
    assert _found(store) == []
    for number, (subject, place) in enumerate(ABOVE + BELOW):
        path = place(store)
        path.chmod(path.stat().st_mode | (0o040, 0o002)[number % 2])
        [told] = _found(store)
        assert (told.subject, told.severity, told.samples) == (subject, "warning", (str(path),))
        subprocess.run(shlex.split(str(told.remedy)), check=True)
    assert _found(store) == []


def test_a_link_is_told_and_not_followed(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-15, OP-88: the mode of what it leads to is no finding here."""
    for subject, place in BELOW:
        elsewhere, path = tmp_path / "elsewhere", place(store)
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        mode = elsewhere.stat().st_mode
        elsewhere.chmod(mode | 0o044)
        [told] = _found(store)
        assert (told.subject, told.severity, told.samples) == (subject, "warning", (str(path),))
        assert told.message.startswith("links stand where files and folders should")
        elsewhere.chmod(mode)
        path.unlink()
        elsewhere.rename(path)
    assert _found(store) == []


def test_what_the_operator_reaches_through_a_link_is_no_finding_but_its_mode_is(
    store: StateStore, tmp_path: Path
) -> None:
    """maintenance OP-88."""
    links = [tmp_path / f"link-{number}" for number in range(len(ABOVE))]
    reached = [place(store) for _, place in ABOVE]
    for link, path in zip(links, reached, strict=True):
        link.symlink_to(path)
    linked = {"url": str(links[0]), "agent_log_dir": links[1], "mailbox_root": links[2]}
    assert _found(store, **linked) == []
    for path in reached:
        path.chmod(path.stat().st_mode | 0o040)
    assert [finding.samples for finding in _found(store, **linked)] == [(str(path),) for path in reached]


def test_what_another_user_owns_is_told(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-15, OP-88."""
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    told = {finding.subject: finding for finding in _found(store)}
    assert {finding.severity for finding in told.values()} == {"warning"}
    assert told["database"].remedy == f"chown {other} {_database(store)}"
    for subject, place in ABOVE + BELOW:
        assert str(place(store)) in told[subject].samples


def test_root_is_told_what_another_user_owns_than_the_one_of_the_database(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-88: root may look after a service's files, and may have made some among them."""
    path = _line_file(store)
    owners = {path: 4711}
    _give_away(monkeypatch, owners)
    assert _found(store) == []
    owners[path] = 0
    [told] = _found(store)
    assert (told.samples, told.remedy) == ((str(path),), f"chown 4711 {path}")


def _give_away(monkeypatch: pytest.MonkeyPatch, owners: dict[Path, int]) -> None:
    """Look as root does, at files of which each is somebody's: these of whom is said, the others of the user 4711."""
    real = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = real(path, follow_symlinks=follow_symlinks)
        return os.stat_result((*found[:4], owners.get(path, 4711), *found[5:10]))

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "lstat", lambda path: stat(path, follow_symlinks=False))
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_mailboxes_that_a_group_shares_may_be_used_by_it_and_by_nobody_else(
    state_store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-88: their two sides may be two users."""
    inbound = _session(state_store) / "inbound.db"
    shared = state_store.settings.model_copy(update={"mailbox_mode": "group"})
    with StateStore(connect(shared), shared) as store:
        store.mailbox.create("group", "session")
    assert _found(state_store, mailbox_mode="group") == []
    inbound.chmod(0o664)
    [told] = _found(state_store, mailbox_mode="group")
    assert (told.samples, told.remedy) == ((str(inbound),), f"chmod 660 {inbound}")
    inbound.chmod(0o660)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert {finding.subject for finding in _found(state_store, mailbox_mode="group")} == {"database"}


def test_what_else_a_group_has_is_left_alone(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-88."""
    group = _session(store).parent
    (group / "skills").mkdir()
    (group / "skills").chmod(0o755)
    (group / "CLAUDE.md").touch(0o644)
    (group / "shared").symlink_to(tmp_path)
    assert _found(store) == []


def test_the_look_at_permissions_writes_nothing(store: StateStore) -> None:
    """maintenance OP-15, OP-88."""
    folder = store.settings.state_dir
    _line_file(store).chmod(0o644)
    before = files_of(folder), {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    assert _found(store)
    assert (files_of(folder), {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}) == before
