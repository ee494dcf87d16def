"""Folders of attachments whose message was never stored, because its writer was killed in between."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

from lastlight_state.jsonl import places
from lastlight_state.mailbox.folder import DIGEST, INBOX, attachments


def old_folders(session: Path, before: datetime) -> list[str]:
    """Names of folders below ``inbox`` that nothing has touched since ``before``. Links are passed over.

    So are folders whose name is a digest, because it does not say which message it belongs to.
    """
    try:
        held = places.listable(session / INBOX, base=session)
    except OSError:
        return []
    try:
        names = sorted(os.listdir(held))  # noqa: PTH208 - of a descriptor
        return [name for name in names if not name.startswith(DIGEST) and _is_old(held, name, before)]
    finally:
        os.close(held)


def remove(session: Path, name: str) -> bool:
    """Remove the files in such a folder, and the folder if nothing else is in it; whether it is gone."""
    target = attachments.MessageFolder(session, INBOX, name)
    attachments.clear(target)
    return not os.path.lexists(target.path)


def _is_old(held: int, name: str, before: datetime) -> bool:
    try:
        found = os.stat(name, dir_fd=held, follow_symlinks=False)
    except OSError:  # removed meanwhile
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_mtime < before.timestamp()
