"""Installing this library for a test, with the installer that the environment has, and from no index."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def install(artifact: Path, target: Path) -> None:
    """A wheel or an sdist alone, without what it depends on. An sdist is built with what is installed here."""
    installer = [sys.executable, "-m", "pip"] if find_spec("pip") else ["uv", "pip"]
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*installer, "install", *options, str(artifact)], check=True)
