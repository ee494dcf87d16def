"""The agent's event logs as files: how many, how large, how new. No content is read."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lastlight_state.clock import to_millis
from lastlight_state.maintenance.records import LineFiles


def measured(root: Path) -> LineFiles:
    """Count and measure the line files under ``root``. What cannot be read, or vanishes meanwhile, is left out."""
    files, size, newest = 0, 0, 0.0
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.endswith(".jsonl"):
                continue
            with suppress(OSError):
                found = Path(folder, name).lstat()
                files, size, newest = files + 1, size + found.st_size, max(newest, found.st_mtime)
    return LineFiles(files=files, bytes=size, newest=to_millis(datetime.fromtimestamp(newest, UTC)) if files else None)
