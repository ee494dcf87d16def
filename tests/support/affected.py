"""Print the tests that are nearest to what has changed since a commit, for ``make affected``.

The suite is arranged like the library, so a changed file leads to the folder of tests that has its name, or to that of
the nearest folder above. What a test reaches from further away is left to ``make test``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

#: Folders of the library whose tests lie elsewhere than their path says.
ELSEWHERE = {
    "aio": ("tests/aio", "tests/workflows/claims"),
    "maintenance/erase": ("tests/maintenance/erase", "tests/maintenance/redact"),
    "integrations": ("tests/frameworks",),
}


def changed(base: str) -> list[str]:
    """Return the files that differ from where this branch left ``base``, and those that no commit has yet."""
    since = _git("merge-base", base, "HEAD").strip()
    return [*_git("diff", "--name-only", since).split(), *_git("ls-files", "--others", "--exclude-standard").split()]


def nearest(files: Iterable[str]) -> list[str]:
    """Return the test files and folders that are nearest to these files, each once, none inside another."""
    found = {"tests/architecture"}
    for file in files:
        found.update(_of(PurePosixPath(file)))
    folders = {path for path in found if (ROOT / path).is_dir()}
    return sorted(path for path in found if not folders & {str(above) for above in PurePosixPath(path).parents})


def _of(file: PurePosixPath) -> Iterable[str]:
    match file.parts:
        case ("tests", "support", folder, *_) if (ROOT / "tests" / folder).is_dir():
            return [f"tests/{folder}"]
        case ("tests", "support", folder, *_) if (ROOT / "tests" / "files" / folder).is_dir():
            return [f"tests/files/{folder}"]
        case ("tests", *_) if file.name.startswith("test_") and (ROOT / file).exists():
            return [str(file)]
        case ("lastlight_state", module):
            return [
                str(test.relative_to(ROOT)) for test in (ROOT / "tests").glob(f"test_{PurePosixPath(module).stem}*.py")
            ]
        case ("lastlight_state", *rooms, module):
            return _of_rooms(rooms, PurePosixPath(module).stem)
        case ("alembic", *_):
            return ["tests/migrations"]
        case ("docs", *_) | (_,) if file.suffix == ".md":
            return ["tests/docs"]
    return []


def _of_rooms(rooms: list[str], module: str) -> Iterable[str]:
    for depth in range(len(rooms), 0, -1):
        path = "/".join(rooms[:depth])
        if path in ELSEWHERE:
            return ELSEWHERE[path]
        if depth == len(rooms) and (ROOT / "tests" / path / module).is_dir():
            return [f"tests/{path}/{module}"]
        if (ROOT / "tests" / path).is_dir():
            return [f"tests/{path}"]
    return []


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.stdout.write(" ".join(nearest(changed(sys.argv[1]))) + "\n")
