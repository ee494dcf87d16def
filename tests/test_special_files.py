"""Every place that opens a path which a caller gives, and what may stand there in place of a file or directory."""

from __future__ import annotations

import inspect
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.hostile import methods
from support.run_log.logs import id_of, run_log, start
from support.workflows.steps import started

from lastlight_state import Settings, StateStore
from lastlight_state.cli.program import COMMANDS, command
from lastlight_state.errors import BackendUnavailable, InvalidValue, StateError
from lastlight_state.files.agent_log import AgentLog, Slug
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.files.mailbox import AgentMailbox, Attachment, HostMailbox, Mailboxes
from lastlight_state.journal.writer.mirrors import LineFileMirror
from lastlight_state.maintenance.imports.kinds import KINDS
from lastlight_state.maintenance.prune.arguments import PrunePolicy
from lastlight_state.special_files import DIRECTORY, REGULAR

#: After so many seconds a call counts as one that hangs.
HANGS_AFTER = 20


class Hung(BaseException):
    """A call was still waiting, or still reading."""


@contextmanager
def no_waiting() -> Iterator[None]:
    """Cut a block off that waits at the other end of a FIFO, or reads without end."""

    def cut(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, cut)
    signal.alarm(HANGS_AFTER)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def _looped(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / "loop")
    return folder / "loop"


def _directory(folder: Path) -> Path:
    (folder / "directory").mkdir()
    (folder / "directory" / "something").write_text("here")
    return folder / "directory"


def _linked(folder: Path) -> Path:
    (folder / "linked").symlink_to(_fifo(folder))
    return folder / "linked"


#: What may stand at a path, by what errors call it.
SPECIAL: dict[str, Callable[[Path], Path]] = {
    "a FIFO": _fifo,
    "a FIFO with a silent writer": _fifo,
    "a link to a FIFO": _linked,
    "a directory": _directory,
    "a socket": lambda folder: folder / "socket",
    "an endless device": lambda _: Path("/dev/zero"),
    "a full device": lambda _: Path("/dev/full"),
    "a loop of links": _looped,
}


@dataclass
class Place:
    """A store with a backup and a mailbox, and the path that is given to a door."""

    folder: Path
    store: StateStore
    path: Path

    @property
    def fresh(self) -> Path:
        """A path where nothing is."""
        return self.folder / f"fresh-{len([*self.folder.iterdir()])}"

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.folder / 'state.db'}"

    def opened(self, call: Callable[[StateStore], object], **settings: Any) -> object:
        """Return what a call of the store returns, opened anew with these settings."""
        with StateStore.open(self.url, settings=Settings(state_dir=self.folder / "state", **settings)) as opened:
            return call(opened)

    def told(self, *words: object) -> str:
        """Return what the command line said. A call that it did not refuse is none of ours."""
        said = lastlight_state(*words)
        if said.code:
            raise Refused(said.out + said.err)
        return said.out


class Refused(StateError):
    """The command line refused a call."""


def _agent_log(store: StateStore) -> None:
    with store.agent_log.writer.open(place=Slug("p"), session_id="s", prompt="go") as log:
        log.append([{"type": "user", "content": "go"}])


def _torn(folder: Path) -> Path:
    file = folder / "torn.jsonl"
    file.write_bytes(b'{"a": 1}\n{"b"')
    return file


def _send(place: Place) -> None:
    boxes = Mailboxes(place.fresh)
    boxes.create("g", "s").inbox.send(kind="chat", content={"text": "see"}, attachments=[Attachment("a", place.path)])


def _mirrored(at: Place) -> None:
    run_id = _run(at)
    at.store.journal.events.append(run_id, "a")
    LineFileMirror(at.store.journal.events, at.path).catch_up(run_id)


def _imported(kind: Any, at: Place) -> None:
    at.store.maintenance.imports.plan(at.path, kind=kind)
    at.store.maintenance.imports.run(at.path, kind=kind)


#: What takes a path of a caller, by its name and the argument's: what it wants there, and how it is called.
FILES: dict[str, Callable[[Place], Any]] = {
    "maintenance.backup.restore to": lambda at: at.store.maintenance.backup.restore(at.folder / "backup", at.path),
    "maintenance.bundles.export dest": lambda at: at.store.maintenance.bundles.export("run", _run(at), at.path),
    "maintenance.bundles.load file": lambda at: at.store.maintenance.bundles.load(at.path),
    "maintenance.bundles.plan file": lambda at: at.store.maintenance.bundles.plan(at.path),
    "maintenance.bundles.read file": lambda at: at.store.maintenance.bundles.read(at.path),
    "maintenance.copy.plan target": lambda at: at.store.maintenance.copy.plan(at.path),
    "maintenance.copy.resume target": lambda at: at.store.maintenance.copy.resume(at.path),
    "maintenance.copy.run target": lambda at: at.store.maintenance.copy.run(at.path),
    "maintenance.repair.seal path": lambda at: at.store.maintenance.repair.seal(at.path),
    "maintenance.repair.salvage path": lambda at: at.store.maintenance.repair.salvage(at.path),
    "maintenance.repair.salvage to": lambda at: at.store.maintenance.repair.salvage(_torn(at.folder), to=at.path),
    "Settings.url": lambda at: StateStore.open(at.path),
    "Settings.url_file": lambda at: StateStore.open(url_file=at.path),
    "line writer": lambda at: LineWriter(at.path).append([b"{}\n"]),
    "attachment": _send,
    "--url-file": lambda at: at.told("stats", "--url-file", at.path),
    "export --out": lambda at: at.told("export", "run", _run(at), "--out", at.path, "--url", at.url),
    "copy --to-file": lambda at: at.told("copy", "--to-file", at.path, "--url", at.url),
    "restore --to-file": lambda at: at.told("restore", "-y", at.folder / "backup", "--to-file", at.path),
    "run-log --to": lambda at: at.told(
        "run-log", "salvage", _torn_run(at), "--to", at.path, "--state-dir", at.folder / "state"
    ),
    "ui --token-file": lambda at: at.told("ui", "--token-file", at.path, "--url", at.url, "--port", "0"),
    **{f"import of {kind.name}": partial(_imported, kind.name) for kind in KINDS.values() if kind.wants == REGULAR},
}
FOLDERS: dict[str, Callable[[Place], Any]] = {
    "maintenance.backup.create folder": lambda at: at.store.maintenance.backup.create(at.path),
    "maintenance.backup.restore folder": lambda at: at.store.maintenance.backup.restore(at.path, at.fresh),
    "maintenance.backup.restore state_dir": lambda at: at.store.maintenance.backup.restore(
        at.folder / "backup", at.fresh, state_dir=at.path
    ),
    "maintenance.backup.verify folder": lambda at: at.store.maintenance.backup.verify(at.path),
    "maintenance.imports.detect path": lambda at: at.store.maintenance.imports.detect(at.path),
    "maintenance.imports.plan path": lambda at: at.store.maintenance.imports.plan(at.path),
    "maintenance.imports.run path": lambda at: at.store.maintenance.imports.run(at.path),
    "maintenance.repair.scan path": lambda at: at.store.maintenance.repair.scan(at.path),
    "PrunePolicy.archive": lambda at: at.store.maintenance.prune.run(
        PrunePolicy(kind="runs", keep_days=1, archive=at.path)
    ),
    "Settings.state_dir": lambda at: StateStore.open(state_dir=at.path),
    "Settings.agent_log_dir": lambda at: at.opened(_agent_log, agent_log_dir=at.path),
    "Settings.agent_log_dir, read": lambda at: at.opened(
        lambda store: store.agent_log.sessions.list(), agent_log_dir=at.path
    ),
    "Settings.run_log_root": lambda at: at.opened(lambda store: start(store.run_log, id_of(1)), run_log_root=at.path),
    "Settings.run_log_root, read": lambda at: at.opened(lambda store: store.run_log.runs.list(), run_log_root=at.path),
    "Settings.mailbox_root": lambda at: Mailboxes(at.path).create("g", "s"),
    "Settings.mailbox_root, read": lambda at: Mailboxes(at.path).list(),
    "mirror of a journal": _mirrored,
    "agent log": lambda at: AgentLog(at.path).sessions.list(),
    "run log": lambda at: run_log(at.path).states.list(),
    "mailbox of a host": lambda at: HostMailbox.open(at.path),
    "mailbox of an agent": lambda at: AgentMailbox.open(at.path),
    "--state-dir": lambda at: at.told("stats", "--state-dir", at.path),
    "prune --archive": lambda at: at.told(
        "prune", "--kind", "runs", "--keep-days", "1", "--archive", at.path, "--url", at.url, "--yes"
    ),
    "repair --out": lambda at: at.told("repair", _torn(at.folder), "--out", at.path),
    "backup folder": lambda at: at.told("backup", at.path, "--url", at.url),
    "restore folder": lambda at: at.told("restore", "-y", at.path, "--to", at.fresh),
    "restore --to-state-dir": lambda at: at.told(
        "restore", "-y", at.folder / "backup", "--to", at.fresh, "--to-state-dir", at.path
    ),
    "import path": lambda at: at.told("import", at.path, "--url", at.url),
    "repair path": lambda at: at.told("repair", at.path),
    **{f"import of {kind.name}": partial(_imported, kind.name) for kind in KINDS.values() if kind.wants == DIRECTORY},
}
#: Options that name no file: a word that sessions are found by, and a path of URLs.
NO_FILES = {"session-state --workspace", "ui --root-path"}


def _run(at: Place) -> str:
    return at.store.workflows.runs.list().items[0].id


def _torn_run(at: Place) -> str:
    log = at.store.run_log
    if log.runs.list().items:
        return log.runs.list().items[0].run_id
    with start(log, id_of(9)):
        pass
    with log.runs.path(id_of(9)).open("ab") as file:
        file.write(b'{"torn')
    return id_of(9)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """A store on SQLite with a run, logs and a backup."""
    with StateStore.open(f"sqlite:///{tmp_path / 'state.db'}", state_dir=tmp_path / "state") as opened:
        started(opened)
        _agent_log(opened)
        opened.maintenance.backup.create(tmp_path / "backup")
        yield opened


def _problem(door: Callable[[Place], Any], at: Place) -> str | None:
    """Return what is wrong with how a door treats a path; None if it says what it expected and what it found."""
    try:
        with no_waiting():
            found = door(at)
    except Hung:
        return "waits"
    except StateError as error:
        said = str(error)
        if re.search(r"expected .* found|already exists|holds files already|symbolic link", said):
            return None
        return said
    except Exception as error:  # noqa: BLE001 - what the test is for
        return repr(error)
    return f"taken: {found!r:.200}"


@pytest.mark.parametrize("kind", SPECIAL)
def test_no_path_of_a_caller_leads_to_a_wait_or_an_endless_read(store: StateStore, tmp_path: Path, kind: str) -> None:
    """house H-150: whatever stands there is refused, with what was expected and what was found."""
    place = tmp_path / "special"
    place.mkdir()
    path = SPECIAL[kind](place)
    with ExitStack() as held:
        if kind == "a socket":
            held.enter_context(closing(socket.socket(socket.AF_UNIX))).bind(str(path))
        if kind == "a FIFO with a silent writer":
            held.callback(os.close, os.open(path, os.O_RDWR))
        doors = {**FILES, **({} if kind == "a directory" else FOLDERS)}
        at = Place(tmp_path, store, path)
        found = {name: problem for name, door in doors.items() if (problem := _problem(door, at)) is not None}
    assert found == {}


def _named() -> Iterator[str]:
    """Every argument of a path: of repositories, of settings, of the command line."""
    with StateStore.open("sqlite:///:memory:") as store:
        for path, method in methods(store):
            for name, parameter in inspect.signature(method).parameters.items():
                if "Path" in str(parameter.annotation):
                    yield f"{path} {name}"
    yield from (f"Settings.{name}" for name, field in Settings.model_fields.items() if "Path" in str(field.annotation))
    yield from (f"PrunePolicy.{one.name}" for one in fields(PrunePolicy) if "Path" in str(one.type))
    for name in COMMANDS:
        for option in command(name).params:
            if isinstance(option.type, click.Path) or re.search("PATH|FILE|DIR", option.metavar or ""):
                flag = max(option.opts)
                yield flag if flag in ("--url-file", "--state-dir") else f"{name} {flag}"


def test_every_argument_of_a_path_is_among_the_doors() -> None:
    """house H-150."""
    assert set(_named()) - NO_FILES <= FILES.keys() | FOLDERS.keys()


@with_each("kind", [kind for kind in SPECIAL if kind != "a full device"])
@with_each("name", ["sslcert", "sslkey", "sslrootcert", "sslcrl", "passfile"])
def test_files_that_libpq_opens_are_looked_at_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """house H-150: in the URL and in the variable of libpq; it would wait for ever, and past every timeout."""
    path = SPECIAL[kind](tmp_path)
    with ExitStack() as held:
        if kind == "a socket":
            held.enter_context(closing(socket.socket(socket.AF_UNIX))).bind(str(path))
        with no_waiting(), pytest.raises(InvalidValue, match=rf"{name} .*expected a regular file, found "):
            StateStore.open(f"postgresql://ana@127.0.0.1:1/state?{name}={path}")
        monkeypatch.setenv(f"PG{name.upper()}", str(path))
        with no_waiting(), pytest.raises(InvalidValue, match=rf"{name} .*expected a regular file, found "):
            StateStore.open("postgresql://ana@127.0.0.1:1/state")


@pytest.mark.slow
def test_a_doctor_passes_by_a_fifo_among_logs(store: StateStore, tmp_path: Path) -> None:
    """house H-150."""
    logs = tmp_path / "state" / "agent-sessions" / "projects" / "p"
    os.mkfifo(logs / "pipe.jsonl")
    with no_waiting():
        store.maintenance.doctor.examine(deep=True)
        store.maintenance.doctor.examine()


def test_the_device_that_is_always_empty_serves_as_a_file_of_passwords() -> None:
    """house H-150: as it is used to have none."""
    with pytest.raises(BackendUnavailable):
        StateStore.open("postgresql://ana@127.0.0.1:1/state?passfile=/dev/null")
