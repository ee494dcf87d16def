"""Where the library does not run, it says so when it is imported."""

import subprocess
import sys


def test_windows_is_refused_in_one_sentence_at_the_import() -> None:
    """house H-140."""
    code = "import os, pathlib, sys; os.name = 'nt'; import lastlight_state"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.stderr.splitlines()[-1] == (
        "ImportError: lastlight_state runs on Linux and macOS, not on Windows: use it in WSL there"
    )
