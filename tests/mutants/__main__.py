"""Makes small changes in the library, one at a time in a copy, and tells which of them the tests do not notice.

    PYTHONPATH=tests python -m mutants [NAME or PREFIX …]
    PYTHONPATH=tests python -m mutants --drawn 60 --seed 2026 [NAME …]

Not collected by pytest and no part of CI: a run of all takes hours. A change that no test notices is a hole in
the suite, unless it changes nothing that anybody could see. A change that was noticed only because a test hung is told
apart.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from mutants import drawn, earlier, edges, ground, rooms, workflows
from mutants.change import Change

ROOT = Path(__file__).resolve().parents[2]
CHANGES = (*workflows.CHANGES, *rooms.CHANGES, *ground.CHANGES, *edges.CHANGES, *earlier.CHANGES)
#: Seconds for the tests of one change. Longer is a hang.
MOST_SECONDS = 400


def main() -> int:
    """Run the changes that the command line names, all by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--drawn", type=int, metavar="COUNT", help="changes at random places instead of the named ones")
    parser.add_argument(
        "--seed", type=int, default=2026, help="the same seed draws the same changes from the same code"
    )
    parser.add_argument("--list", action="store_true", help="print the changes and run nothing")
    given = parser.parse_args()
    changes = drawn.drawn(given.drawn, given.seed) if given.drawn else CHANGES
    named = [change for name in given.names for change in changes if change.name.startswith(name)]
    chosen = list(dict.fromkeys(named)) if given.names else changes
    if given.list:
        print(*(f"{change.name:9} {change.kind} {change.file}\n{change.difference}" for change in chosen), sep="\n")  # noqa: T201
        return 0
    with tempfile.TemporaryDirectory() as folder:
        outcomes = _all_tried(chosen, _copied(Path(folder) / "tree"))
    _report(outcomes)
    return 0 if all(outcome != "SURVIVED" or change.accepted for change, outcome in outcomes.items()) else 1


def _all_tried(changes: Sequence[Change], tree: Path) -> dict[Change, str]:
    """Each change against its first tests; then those that nobody noticed against the next, so that they show early."""
    outcomes = dict.fromkeys(changes, "SURVIVED")
    rounds = {change: _rounds(change, tree) for change in changes}
    for number in range(max(map(len, rounds.values()), default=0)):
        for change in changes:
            if outcomes[change] == "SURVIVED" and number < len(rounds[change]):
                outcomes[change] = _tried(change, tree, rounds[change][number], f"{number + 1}/{len(rounds[change])}")
    return outcomes


def _copied(tree: Path) -> Path:
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "dist")
    shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
    return tree


def _tried(change: Change, tree: Path, words: list[str], which: str) -> str:
    file = tree / change.file
    before = file.read_text()
    if before.count(change.old) != 1:
        print(f"{change.name:6} GONE: the place was rewritten", flush=True)  # noqa: T201
        return "GONE"
    file.write_text(change.applied(before))
    began = time.monotonic()
    try:
        outcome = _run(change, tree, *words)
    finally:
        file.write_text(before)
    print(f"{change.name:8} {which} {outcome:9} {time.monotonic() - began:5.0f} s  {change.file}", flush=True)  # noqa: T201
    if change.kind and outcome != "noticed":
        print(change.difference, flush=True)  # noqa: T201
    return outcome


def _rounds(change: Change, tree: Path) -> list[list[str]]:
    """What is run after what: the likely files first, and for a drawn change Postgres last."""
    quick = [] if change.on == "both" else ["-k", "not postgres"] if change.package == "aio" else ["--quick"]
    likely, tests = _likely(change, tree), [f"tests/{path}" for path in change.tests.split()]
    rounds = [[*likely, *quick]] if likely else []
    rounds += [[*tests, *quick, *(f"--deselect={file}" for file in likely)]]
    if change.on == "each":
        rounds += [[*(likely or tests), "-k", "not sqlite"]]
    if change.kind and ("/postgres/" in change.file or change.old.count("for_update") > change.new.count("for_update")):
        rounds = [
            [*files, "-k", "not sqlite"] for files in ([likely, tests] if likely else [tests])
        ]  # SQLite has not got it
    return rounds


def _run(change: Change, tree: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--timeout=60", "-p", "no:cacheprovider"]
    command += ["-o", "lastlight_postgres_at_start=false", *words]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "HUNG"
    if done.returncode in (0, 5):  # 5: there is no such test
        return "SURVIVED"
    if done.returncode not in (1, 2):
        print(done.stdout[-2000:], done.stderr[-2000:])  # noqa: T201
        return "BROKEN"
    if change.kind:
        print(*re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)[:1], file=sys.stderr, flush=True)  # noqa: T201
    if "from pytest-timeout" in done.stdout or "pytest_timeout" in done.stdout:
        return "hung"
    return "noticed"


def _likely(change: Change, tree: Path) -> list[str]:
    """The test files whose paths share most words with the changed file: they are run first."""
    words = drawn.words(change.file) - {"lastlight", "state", "py", "init", *drawn.words(change.package)}
    given = [tree / "tests" / path for path in change.tests.split()]
    files = [file for path in given for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]
    shared = {file: len(words & drawn.words(file.relative_to(tree).as_posix())) for file in files}
    races = [file for file in files if "look" in file.stem or "race" in file.stem] if "lock" in change.old else []
    of_kind = {Path(name).name for names in drawn.OF_KIND.values() for name in names.split()}
    races += [file for file in files if file.name in ("test_snapshot.py", *of_kind)]
    likely = sorted((file for file in files if shared[file]), key=lambda file: -shared[file])
    return [file.relative_to(tree).as_posix() for file in dict.fromkeys([*likely, *races])]


def _report(outcomes: dict[Change, str]) -> None:
    packages: dict[str, list[str]] = defaultdict(list)
    for change, outcome in outcomes.items():
        if outcome != "GONE":
            packages[change.package].append(outcome)
    for package, found in sorted(packages.items()):
        noticed = sum(outcome in ("noticed", "hung") for outcome in found)
        print(f"{package:12} {noticed:3} of {len(found):3}")  # noqa: T201
    for change, outcome in outcomes.items():
        if outcome == "SURVIVED":
            print(f"not noticed: {change.name} {change.file} {change.accepted}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
