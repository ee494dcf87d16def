"""pytest plugin: collects the tests once and tries each change in a fork, with tests that run the changed lines.

    coverage run --rcfile=tests/mutants/coveragerc -m pytest -p mutants.recording
    PYTHONPATH=tests pytest -p mutants.forked --recorded .mutants --changes 100 --seed 2033
    PYTHONPATH=tests pytest -p mutants.forked --recorded .mutants --kind handlers --part 0:500:2

A change costs a second or two so, not a minute. What is made when a module is imported cannot be changed in a fork:
these changes are said to be ``elsewhere``, and ``python -m mutants`` tries them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from coverage import CoverageData
from mutants import drawn
from mutants.change import Change
from mutants.remaking import Remade, Uses
from mutants.replacing import Elsewhere, functions, replace, replacements

import lastlight_state

ROOT = Path(__file__).resolve().parents[2]
#: The context of lines that ran at the import of their module.
IMPORTED = "imported"
#: Seconds for the tests of one change, and how long the last of them may take beyond.
MOST_SECONDS, LAST = 40, 30
SLOWER = ("postgres", "async")
#: Seconds of a test that is slow.
LONG = 0.7


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changes", type=int, help="how many changes to draw")
    parser.addoption("--seed", type=int)
    parser.addoption("--kind", help="all changes of a kind, instead of drawn ones")
    parser.addoption("--part", default="", help="those from the first to the last, each so many: 0:500:2")
    parser.addoption("--most", type=float, default=MOST_SECONDS, help="seconds for the tests of one change")
    parser.addoption("--recorded", type=Path, required=True, help="the file of coverage's data")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try the changes instead of running the tests."""
    trials = Trials(session, Recorded(session.config.getoption("recorded"), session.items))
    given = session.config.getoption
    changes = drawn.of_kind(given("kind")) if given("kind") else drawn.drawn(given("changes"), given("seed"))
    part = slice(*(int(number) if number else None for number in given("part").split(":")))
    outcomes: Counter[str] = Counter()
    for change in changes[part]:
        outcome, test = trials.outcome(change)
        outcomes[outcome] += 1
        _say(session, f"{change.name:9} {outcome:9} {change.kind:10} {change.file} {test}")
        if outcome != "noticed":
            _say(session, change.difference)
    _say(session, ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common()))
    return True


class Recorded:
    """Which tests run which lines, from the data of a run with `mutants.recording`."""

    def __init__(self, file: Path, items: Sequence[pytest.Item]) -> None:
        self._data = CoverageData(str(file))
        self._data.read()
        self._lines: dict[str, dict[int, list[str]]] = {}
        self._items: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in sorted(items, key=lambda item: any(word in item.nodeid for word in SLOWER)):
            self._items[item.nodeid.partition("[")[0]].append(item)

    def at_import(self, lines: Iterable[tuple[str, int]]) -> bool:
        """Whether one of the lines runs when its module is imported."""
        return IMPORTED in self._contexts(lines)

    def tests(self, change: Change, lines: Iterable[tuple[str, int]]) -> Iterator[pytest.Item]:
        """The tests that run one of the lines: each at first in its cheapest variant, the likeliest before."""
        place, named = drawn.words(change.file), drawn.words(change.old.lower())
        names = sorted(self._contexts(lines) & self._items.keys())
        random.Random(change.file).shuffle(names)
        shared = {
            name: (drawn.words(file), drawn.words(test)) for name in names for file, _, test in [name.partition("::")]
        }
        names.sort(key=lambda name: -2 * len(place & shared[name][0]) - len((named | place) & shared[name][1]))
        yield from (self._items[name][0] for name in names)
        yield from (item for name in names for item in self._items[name][:0:-1])

    def of_kind(self, change: Change) -> list[pytest.Item]:
        """The tests of a whole kind of changes, which read what was made at the import of modules."""
        files = [f"tests/{file}" for file in drawn.OF_KIND.get(change.kind, "").split()]
        return [items[0] for name, items in self._items.items() if name.partition("::")[0] in files]

    def _contexts(self, lines: Iterable[tuple[str, int]]) -> set[str]:
        return {context for file, line in lines for context in self._of_file(file).get(line, ())}

    def _of_file(self, file: str) -> dict[int, list[str]]:
        if file not in self._lines:
            self._lines[file] = self._data.contexts_by_lineno(file)
        return self._lines[file]


class Applying(NamedTuple):
    """What makes a change in this process, the lines that show it, and tests that may show it without running these."""

    apply: Callable[[], None]
    used: set[tuple[str, int]]
    first: list[pytest.Item]


class Trials:
    """Tries changes in forks of this process."""

    def __init__(self, session: pytest.Session, recorded: Recorded) -> None:
        self._session = session
        self._recorded = recorded
        self._functions = functions(lastlight_state)
        self._uses = Uses(lastlight_state.__name__)
        self._unsound: dict[str, bool] = {}
        self._most: float = session.config.getoption("most")
        #: The seconds of tests that have run in a fork. Those that took long come last.
        self._took: dict[str, float] = {}
        #: The tests that have noticed a change of a file. They come first.
        self._noticing: dict[str, set[str]] = defaultdict(set)

    def outcome(self, change: Change) -> tuple[str, str]:
        """``noticed`` and the test, or ``survived``, ``cut off``, ``uncovered``, ``hung``, ``elsewhere``."""
        text = (ROOT / change.file).read_text()
        lines = _changed_lines(text, change)
        try:
            apply, used, first = self._applying(change, text, lines)
        except Elsewhere:
            return "elsewhere", ""
        found = dict.fromkeys((*first, *self._recorded.tests(change, used)))
        tests = [test for test in found if not self._unsound.get(test.nodeid)]
        first_of_all = self._noticing[change.file]
        tests.sort(key=lambda test: (self._is_slow(test), test.nodeid not in first_of_all))
        tests.sort(key=lambda test: test not in first)
        outcome, name = self._forked(apply, tests)
        if name and self._is_unsound(name, tests):
            return self.outcome(change)
        if name:
            self._noticing[change.file].add(name)
        return outcome if tests else "uncovered", name

    def _applying(self, change: Change, text: str, lines: range) -> Applying:
        """How the change is made in this process, and which tests may show it. Raises `Elsewhere`."""
        file = str(ROOT / change.file)
        remade = Remade(self._uses, lambda *line: self._recorded.at_import([line]))
        try:
            codes = replacements(file, text, change.applied(text))
        except Elsewhere:
            remade.assignment(file, change.applied(text), lines)
            if not remade.used:
                raise
            return Applying(remade.apply, remade.used, self._recorded.of_kind(change))
        used = {(file, line) for line in lines}
        replaced = [(function, code) for place, code in codes.items() for function in self._functions[place]]
        if self._recorded.at_import(used):
            for place in codes:
                remade.function(file, place.name)

        def apply() -> None:
            replace(replaced)
            remade.apply()

        return Applying(apply, used | remade.used, [])

    def _is_unsound(self, name: str, tests: Sequence[pytest.Item]) -> bool:
        """Whether the test fails in a fork without any change, too."""
        if name not in self._unsound:
            alone = [test for test in tests if test.nodeid == name]
            self._unsound[name] = self._forked(lambda: None, alone)[0] != "survived"
        return self._unsound[name]

    def _forked(self, change: Callable[[], None], tests: Sequence[pytest.Item]) -> tuple[str, str]:
        with TemporaryDirectory() as folder:
            child = os.fork()
            if not child:
                os.setpgid(0, 0)
                self._run(change, tests, Path(folder))
            ended = _ended(child, time.monotonic() + self._most + LAST)
            failed = Path(folder, "failed")
            name = failed.read_text() if failed.exists() else ""
            self._learn(Path(folder, "took"))
            whole = "cut off" if Path(folder, "cut").exists() else "survived"
        return ("noticed" if name else whole if ended else "hung"), name

    def _is_slow(self, test: pytest.Item) -> bool:
        return self._took.get(test.nodeid, 0.0) > LONG

    def _learn(self, took: Path) -> None:
        for line in took.read_text().splitlines() if took.exists() else ():
            seconds, _, name = line.partition(" ")
            self._took[name] = float(seconds)

    def _run(self, change: Callable[[], None], tests: Sequence[pytest.Item], folder: Path) -> None:
        """Runs the tests until one fails or the time is up. Does not return."""
        until = time.monotonic() + self._most
        try:
            self._session.config._tmp_path_factory._basetemp = folder / "tests"  # type: ignore[attr-defined]
            (folder / "tests").mkdir()
            change()
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                began = time.monotonic()
                if any(report.failed for report in runtestprotocol(test, log=False, nextitem=following)):
                    (folder / "failed").write_text(test.nodeid)
                    break
                with (folder / "took").open("a") as took:
                    took.write(f"{time.monotonic() - began:.2f} {test.nodeid}\n")
                if following is not None and time.monotonic() > until:
                    (folder / "cut").touch()
                    break
            self._session._setupstate.teardown_exact(None)
        finally:
            os._exit(0)


def _changed_lines(text: str, change: Change) -> range:
    """The lines that go, without those that only say where."""
    old, new = change.old.splitlines(), change.new.splitlines()
    same = _same(old, new)
    behind = _same(old[same:][::-1], new[same:][::-1])
    first = text[: text.index(change.old)].count("\n") + 1
    return range(first + same, first + len(old) - behind)


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines are the same at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _ended(child: int, until: float) -> bool:
    """Waits for the child, and ends it and its own children."""
    ended = False
    while not ended and time.monotonic() < until:
        ended = os.waitpid(child, os.WNOHANG)[0] == child
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    return ended


def _say(session: pytest.Session, text: str) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    capture = session.config.pluginmanager.get_plugin("capturemanager")
    assert reporter is not None
    assert capture is not None
    with capture.global_and_fixture_disabled():
        reporter.write_line(text)
