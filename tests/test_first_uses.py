"""What loads at its first use is safe to use first in several threads, and while signals come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
from support.first_calls import THREADS

from lastlight_state import lazy

PROGRAM = Path(__file__).parent / "support" / "first_calls.py"
STARTS = [pytest.param(4), pytest.param(300, marks=pytest.mark.soak)]

#: Uses every part of a store and each public name, and tells what was imported in the main thread.
USES_ALL = """
import pkgutil, sys, threading
import lastlight_state
from lastlight_state.lazy import Part

seen = []

class Watcher:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            seen.append(name)

def use(whole, depth=0):
    for kind in type(whole).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, Part) and depth < 4:
                use(getattr(whole, name), depth + 1)

sys.meta_path.insert(0, Watcher())
for name in lastlight_state.__all__:
    getattr(lastlight_state, name)
with lastlight_state.StateStore.open(sys.argv[1]) as store:
    use(store)
    use(lastlight_state.AsyncStateStore(store))
    with store.transaction() as tx:
        use(tx)
    store.schedules.crons.list()
    store.maintenance.doctor.examine()
assert "lastlight_state.aio.workflows" in sys.modules
for package in pkgutil.iter_modules(lastlight_state.__path__, "lastlight_state."):
    if package.ispkg and package.name in sys.modules:
        for name in getattr(sys.modules[package.name], "__all__", ()):
            getattr(sys.modules[package.name], name)
print(*seen)
"""


@pytest.mark.slow
def test_nothing_is_imported_in_the_main_thread_where_signals_raise(tmp_path: Path) -> None:
    """backends B-190: not by any part of a store, nor by any name of a package."""
    command = [sys.executable, "-c", USES_ALL, str(tmp_path / "some.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert (ours, done.stderr) == ([], "")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_no_thread_hangs_when_a_signal_comes_while_threads_make_their_first_calls(
    tmp_path: Path, number: int, starts: int
) -> None:
    """backends B-190: nor does a first call fail because another thread makes one."""
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(int(number)), str(starts)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == starts
    assert {line.partition(": ")[2] for line in told} == {"0 hang, []"}, told
    assert any(not line.startswith("nothing") for line in told), told
    assert THREADS > 1


def test_a_signals_exception_ends_the_wait_for_an_import_and_not_the_import() -> None:
    """backends B-190: so that it leaves no lock of Python's behind."""
    begun, may_end, made = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        may_end.wait(30)
        made.set()

    def kill() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=kill).start()
    with pytest.raises(KeyboardInterrupt):
        lazy.run_imports(call)
    assert not made.is_set()
    may_end.set()
    assert made.wait(30)
    assert lazy.run_imports(lambda: 1) == 1


def test_what_a_module_uses_while_it_is_imported_is_imported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-190: another thread would wait for the lock of the module that waits for it."""
    (tmp_path / "half_made.py").write_text(
        "import threading\nfrom lastlight_state import lazy\nnow = lazy.run_imports(threading.current_thread)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[ModuleType] = []
    thread = threading.Thread(target=lambda: seen.append(__import__("half_made")))
    thread.start()
    thread.join(30)
    monkeypatch.delitem(sys.modules, "half_made")
    assert seen[0].now is thread


def test_an_error_of_an_import_is_raised_where_the_module_was_asked_for() -> None:
    """backends B-190."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        lazy.load("lastlight_state.no_such_module")


def test_a_forked_child_may_import_what_its_parent_was_importing() -> None:
    """backends B-190: the thread that had the turn is not there."""
    begun, may_end = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        may_end.wait(30)

    thread = threading.Thread(target=lambda: lazy.run_imports(call))
    thread.start()
    begun.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(lazy.run_imports(lambda: 3))
    may_end.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
