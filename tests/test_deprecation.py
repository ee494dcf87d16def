"""Names that a later version removes: the warning names the line of the program that uses them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.migrations.next_version import Version, candidate, next_after

from lastlight_state import AsyncStateStore, InvalidValue
from lastlight_state.aio.workflows import AsyncLoops
from lastlight_state.deprecation import deprecate, warn_deprecated
from lastlight_state.workflows import Trigger

#: The suite of a host. Each test uses a name that the next version deprecates, on the line that says so.
SUITE = """
import asyncio

from lastlight_state import AsyncStateStore, StateStore, iterate


def test_a_name(tmp_path):
    with StateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
        list(iterate(store.states.list))  # deprecated


def test_a_method(tmp_path):
    with StateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
        stored = store.states.put("key", 1)
        store.states.state_of(stored.id)  # deprecated


def test_its_async_face(tmp_path):
    async def use():
        async with await AsyncStateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
            stored = await store.states.put("key", 1)
            await store.states.state_of(stored.id)  # deprecated

    asyncio.run(use())


def test_its_async_face_in_a_task(tmp_path):
    async def use():
        async with await AsyncStateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
            stored = await store.states.put("key", 1)
            await asyncio.create_task(store.states.state_of(stored.id))  # deprecated

    asyncio.run(use())


def test_a_transaction(tmp_path):
    with StateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
        with store.transaction() as tx:
            stored = tx.states.put("key", 1)
            tx.states.state_of(stored.id)  # deprecated
"""
LINES = [number for number, line in enumerate(SUITE.splitlines(), 1) if line.endswith("# deprecated")]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, Path]:
    """The next version, and the folder of the host's suite."""
    folder = tmp_path_factory.mktemp("deprecation")
    old, _ = candidate(folder)
    (folder / "suite").mkdir()
    (folder / "suite" / "test_host.py").write_text(SUITE)
    return next_after(old, folder / "next"), folder / "suite"


def outcome(suite: tuple[Version, Path], *options: str) -> str:
    """Return what the host's suite prints."""
    version, folder = suite
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", *options, "test_host.py"]
    done = subprocess.run(words, cwd=folder, env=version.environment(), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_suite_whose_warnings_are_errors_fails_at_the_lines_that_use_deprecated_names(
    suite: tuple[Version, Path],
) -> None:
    """packaging PT-39: a function, a method, its async face, also in a task of its own."""
    printed = outcome(suite, "-W", "error::DeprecationWarning")
    assert f"{len(LINES)} failed" in printed, printed
    assert printed.count("DeprecationWarning: States.state_of is deprecated since 0.2.0: use get") >= 4
    assert printed.count("DeprecationWarning: iterate is deprecated since 0.2.0: use pages") >= 1


def test_the_warnings_of_a_suite_name_its_lines_once_each(suite: tuple[Version, Path]) -> None:
    """packaging PT-39: no line of this library, and none of a thread."""
    printed = outcome(suite)
    assert f"{len(LINES)} passed" in printed, printed
    assert sorted(map(int, re.findall(r"test_host\.py:(\d+): DeprecationWarning", printed))) == LINES
    assert len(re.findall(r": DeprecationWarning: ", printed)) == len(LINES), printed


def test_a_deprecated_function_does_what_it_did() -> None:
    """packaging PT-39: with a text that the async face finds."""

    @deprecate("other", since="9.0")
    def double(number: int, *, plus: int = 0) -> int:
        """Return twice the number."""
        return 2 * number + plus

    with pytest.warns(DeprecationWarning, match=r"double is deprecated since 9\.0: use other") as caught:
        assert double(2, plus=1) == 5
    assert caught[0].filename == __file__
    assert (double.__name__, double.__doc__) == ("double", "Return twice the number.")


def test_a_deprecated_method_keeps_its_claim_and_its_checks_on_the_async_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """packaging PT-39: it runs as if it were not deprecated, and warns where the program stands."""
    monkeypatch.setattr(vars(AsyncLoops)["put"].method, "__deprecated__", "put is old", raising=False)

    async def drive() -> None:
        async with await AsyncStateStore.open(tmp_path / "a.db", state_dir=tmp_path) as store:
            run = await store.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
            claim = await store.workflows.claims.take(run.id, owner="me")
            async with store.workflows.claims.driving(claim) as driven:
                with pytest.warns(DeprecationWarning, match="put is old") as caught:
                    await driven.workflows.loops.put(run.id, "loop", iteration=1)
                assert [Path(one.filename) for one in caught] == [Path(__file__)]
                with pytest.warns(DeprecationWarning, match="put is old"), pytest.raises(InvalidValue):
                    await driven.workflows.loops.put(run.id, "loop", iteration="1")  # type: ignore[arg-type]

    asyncio.run(drive())


def test_a_warning_without_a_caller_outside_names_some_line() -> None:
    """packaging PT-39: in a program that is this library alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile("warn('old')", "inside.py", "exec"), {"__name__": "lastlight_state.x", "warn": warn_deprecated})
    assert [str(one.message) for one in caught] == ["old"]
