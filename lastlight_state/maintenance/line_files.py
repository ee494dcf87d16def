"""Number, size and newest change of all line files. Their contents are not read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from lastlight_state.clock import of_file
from lastlight_state.maintenance.records import LineFiles


def measured(roots: Sequence[Path]) -> LineFiles:
    """Count and measure the line files below these directories. Files that cannot be read or vanish are left out."""
    files, size, newest = 0, 0, 0
    for folder, _, names in chain.from_iterable(map(os.walk, roots)):
        for name in names:
            if not name.endswith(".jsonl"):
                continue
            with suppress(OSError):
                found = Path(folder, name).lstat()
                files, size, newest = files + 1, size + found.st_size, max(newest, found.st_mtime_ns)
    return LineFiles(files=files, bytes=size, newest=of_file(newest) if files else None)
