"""What 0.1.0 promises to keep has one recording each; a change says which promise it breaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import frozen

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what a process without the tests' own records writes."""
    folder = tmp_path_factory.mktemp("frozen")
    code = "import sys; from pathlib import Path; from support import frozen\n"
    code += "for name in frozen.PROMISES: (Path(sys.argv[1]) / name).write_text(frozen.text_of(name))"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT / "tests", check=True)
    return folder


@pytest.mark.parametrize("name", frozen.PROMISES)
def test_what_is_frozen_is_as_recorded(name: str, written: Path) -> None:
    """packaging PT-40: lines may be added; one that goes or changes breaks the promise."""
    recorded = (frozen.FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    found = (written / name).read_text("utf-8").splitlines()
    gone = [line for line in recorded if line not in found]
    assert not gone, f"the promise that {frozen.PROMISES[name][1]} is broken by: {gone}"
    assert found == recorded, f"`make record` is due: tests/fixtures/frozen/{name}.txt has additions"
