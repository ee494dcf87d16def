"""Programs of tests, forked from a process that has loaded the library: each costs 0.6 s of imports less.

A `Program` is a `subprocess.Popen` that its test sees no difference to: a process of its own with the arguments,
environment, directory and pipes that it is given, and a child of the test's process. What it cannot do so, such as
another interpreter or a function before the start, and anything where there is no Linux, it starts as usual.

What Python itself reads at its start is that of the first program: options but for ``-W``, and variables of Python. A
test of the start of Python or of what is imported uses `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

SUBREAPER = 36
_PLAIN = {"preexec_fn": None, "shell": False, "uid": None, "gid": None, "gids": None, "umask": -1, "pass_fds": ()}
_PLAIN |= {"executable": None, "process_group": -1}
#: The bytes that say how long a request is.
_LENGTH = 8


Done = subprocess.CompletedProcess[str]


class Program(subprocess.Popen[str]):
    """A process, forked if it can be."""

    def _execute_child(self, *given: Any) -> None:
        start: Any = super()._execute_child  # type: ignore[misc] # of the standard library alone
        named = signature(start).bind(*given).arguments
        arguments = [os.fspath(one) for one in named["args"]] if isinstance(named["args"], Sequence) else []
        environment = dict(os.environ if named["env"] is None else named["env"])
        forked = arguments[:1] == [sys.executable] and sys.platform == "linux" and Job.parsed(arguments[1:]) is not None
        plain = all(named.get(name, usual) == usual for name, usual in _PLAIN.items())
        if not (forked and plain and _of_python(environment) == _of_python(os.environ)):
            start(*given)
            return
        request = {
            "arguments": arguments[1:],
            "environment": environment,
            "folder": os.fspath(named["cwd"] or os.getcwd()),  # noqa: PTH109 - as the child sees it
            "session": bool(named["start_new_session"]),
        }
        ends = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
        self.pid = _server().fork(request, [own if end == -1 else end for own, end in enumerate(ends)])
        self._child_created = True
        pipes = [named[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_program(command: Sequence[Any], *, check: bool, timeout: float | None = None, **options: Any) -> Done:
    """Run a `Program` to its end, as `subprocess.run` does."""
    options.setdefault("text", True)
    said = options.pop("input", None)
    if said is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Program(command, **options) as program:
        try:
            told, errors = program.communicate(said, timeout)
        except BaseException:
            program.kill()
            raise
    done = Done(command, program.returncode, told, errors)
    if check:
        done.check_returncode()
    return done


class Server:
    """The process that forks, as seen from the one that runs tests."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._line, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], ends: list[int]) -> int:
        """Return the pid of a new child of this process. Its parent has ended by then, so that this process is next."""
        text = json.dumps(request).encode()
        with self._lock:
            _take_orphans(True)
            try:
                socket.send_fds(self._line, [len(text).to_bytes(_LENGTH)], ends)
                self._line.sendall(text)
                return int.from_bytes(_received(self._line, _LENGTH))
            finally:
                _take_orphans(False)

    def close(self) -> None:
        """End the process; in a forked child, which has a copy of this object, do nothing."""
        if self.owner == os.getpid():
            self._line.close()
            self._process.wait()


class Job:
    """What a new process does: ``-c text``, ``-m module`` or a file, behind any ``-W`` words."""

    def __init__(self, filters: list[str], kind: str, what: str, rest: list[str]) -> None:
        self.filters = filters
        self.kind = kind
        self.what = what
        self.rest = rest

    @classmethod
    def parsed(cls, arguments: list[str]) -> Job | None:
        """Return the job that the arguments of Python name, or None if it needs a Python of its own."""
        filters = []
        while len(arguments) > 2 and arguments[0] == "-W":
            filters.append(arguments[1])
            arguments = arguments[2:]
        if any(one not in ("error", "ignore") for one in filters) or not arguments:
            return None
        if arguments[0] in ("-c", "-m") and len(arguments) > 1:
            return cls(filters, arguments[0], arguments[1], arguments[2:])
        return None if arguments[0].startswith("-") else cls(filters, "", arguments[0], arguments[1:])

    def run(self) -> None:
        """Do it, as ``__main__``."""
        for word in self.filters:
            sys.warnoptions.append(word)
            warnings.simplefilter(word)  # type: ignore[arg-type] # one of two that `parsed` lets through
        sys.argv = [self.what if not self.kind else self.kind, *self.rest]
        sys.path[0] = os.path.dirname(self.what) if not self.kind else os.getcwd() if self.kind == "-m" else ""  # noqa: PTH120, PTH109
        if self.kind == "-m":
            runpy.run_module(self.what, run_name="__main__", alter_sys=True)
            return
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        text, name = (self.what, "<string>") if self.kind else (Path(self.what).read_text("utf-8"), self.what)
        if not self.kind:
            main.__file__ = name
        exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read when a Python starts."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "COVERAGE", "LANG", "LC_", "LD_"))
    }


_held: list[Server] = []


def _server() -> Server:
    if not _held or _held[0].owner != os.getpid():
        _held[:] = [Server()]
    return _held[0]


def _take_orphans(wanted: bool) -> None:
    """Ask Linux to give this process the children of a descendant that ends, or not to."""
    if ctypes.CDLL(None).prctl(SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError("this process cannot become the parent of what another one has forked")


def _received(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _load() -> None:
    """Load what programs of tests use. No store is opened and no thread started."""
    for name in ("alembic.command", "psycopg", "sqlalchemy.dialects.sqlite.pysqlite"):
        importlib.import_module(name)
    package = importlib.import_module("lastlight_state")
    for module in pkgutil.walk_packages(package.__path__, "lastlight_state."):
        room = module.name.split(".")[1]
        if room not in ("__main__", "_migrations", "integrations", "testing", "inspector", "models", "telemetry"):
            importlib.import_module(module.name)


def serve(line: socket.socket) -> Job | None:
    """Fork what is asked for. Return in each new process with its job, and in this one when the other side has gone."""
    while True:
        try:
            head, ends, _, _ = socket.recv_fds(line, _LENGTH, 3)
            if not head:
                return None
            request = json.loads(_received(line, int.from_bytes(head)))
        except (EOFError, ConnectionError):
            return None
        told, tells = os.pipe()
        if between := os.fork():
            for end in (*ends, tells):
                os.close(end)
            pid = os.read(told, _LENGTH)
            os.close(told)
            os.waitpid(between, 0)
            line.sendall(pid)
            continue
        ready, readies = os.pipe()
        if child := os.fork():
            os.close(readies)
            os.read(ready, 1)
            os.write(tells, child.to_bytes(_LENGTH))
            os._exit(0)
        line.detach()
        return _set_up(request, ends, readies)


def _set_up(request: dict[str, Any], ends: list[int], readies: int) -> Job | None:
    for own, end in enumerate([os.dup(end) for end in ends]):
        os.dup2(end, own, inheritable=True)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if request["session"]:
        os.setsid()
    os.close(readies)
    os.closerange(3, 256)
    time.tzset()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)  # begun anew and not replaced, because Alembic has taken hold of the one it found
        raw = open(stream.fileno(), f"{mode}b", closefd=False)  # noqa: SIM115 - for the rest of the process
        is_at_once = name == "stderr" or raw.isatty()
        stream.__init__(raw, stream.encoding, stream.errors, line_buffering=is_at_once)
    return Job.parsed(request["arguments"])


if __name__ == "__main__":
    _load()
    gc.collect()
    gc.freeze()
    if job := serve(socket.socket(fileno=int(sys.argv[1]))):
        job.run()
