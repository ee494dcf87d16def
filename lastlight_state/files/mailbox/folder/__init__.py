"""Names and paths of mailboxes. `Place` checks directories; this module opens no file.

::

    <root>/<agent group>/<session>/
        inbound.db             the host writes, the agent reads
        outbound.db            the agent writes, the host reads
        .heartbeat             touched by the agent
        inbox/<message>/       attachments of inbound messages
        outbox/<message>/      attachments of outbound messages

The folder of an agent group contains other files of that group, too. They are never touched.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import translate_errors
from lastlight_state.files.mailbox.models import MAILBOX
from lastlight_state.reprs import repr_of
from lastlight_state.special_files import DIRECTORY, mismatch_at

INBOUND_DB, OUTBOUND_DB, HEARTBEAT, INBOX, OUTBOX = "inbound.db", "outbound.db", ".heartbeat", "inbox", "outbox"
#: The prefixes of folders that are being created or deleted. No session has such a name.
MADE, GONE = ".new-", ".gone-"
#: The prefix of folders whose names are digests of ids.
DIGEST = "id-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MESSAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")


def checked_name(where: str, name: Any) -> str:
    """Check the id of an agent group or session, and return it.

    Raises `UnsafePath` if it cannot be the name of its folder.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnsafePath(
            where, f"must be 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit: {repr_of(name, 80)}"
        )
    return name


def is_name(name: str) -> bool:
    """True if a folder of this name may be a group or session."""
    return _NAME.fullmatch(name) is not None


def session_dir(root: Path, group: str, session: str) -> Path:
    """Return the folder that contains a session's mailbox."""
    return root / checked_name("agent_group_id", group) / checked_name("session_id", session)


def inbound_db_path(root: Path, group: str, session: str) -> Path:
    """Return the path of ``inbound.db``, which the host writes."""
    return session_dir(root, group, session) / INBOUND_DB


def outbound_db_path(root: Path, group: str, session: str) -> Path:
    """Return the path of ``outbound.db``, which the agent writes."""
    return session_dir(root, group, session) / OUTBOUND_DB


def heartbeat_path(root: Path, group: str, session: str) -> Path:
    """Return the heartbeat file, whose time the agent sets."""
    return session_dir(root, group, session) / HEARTBEAT


def inbox_dir(root: Path, group: str, session: str) -> Path:
    """Return the folder of inbound attachments."""
    return session_dir(root, group, session) / INBOX


def outbox_dir(root: Path, group: str, session: str) -> Path:
    """Return the folder of outbound attachments."""
    return session_dir(root, group, session) / OUTBOX


def message_folder(message_id: str) -> str:
    """Return the name of a message's folder of attachments: its id, or a digest if the id is not a safe name."""
    if _MESSAGE.fullmatch(message_id) and not message_id.startswith(DIGEST):
        return message_id
    return f"{DIGEST}{hashlib.sha256(message_id.encode()).hexdigest()}"


@dataclass(frozen=True)
class Place:
    """The folder of one session. ``root`` is the folder above the folder of the agent group."""

    root: Path
    group: str
    session: str

    @classmethod
    def below(cls, root: Path, group: str, session: str) -> Place:
        """Return the folder of a session below this root. The root's path may contain links.

        No directory below the root may be a link.
        """
        checked_name("agent_group_id", group)
        checked_name("session_id", session)
        place = cls(files.real(root), group, session)
        place._refuse_links()
        return place

    @classmethod
    def of(cls, folder: Path) -> Place:
        """Return the place that a session's folder has.

        The last two names of its path are the group and the session.
        """
        absolute = folder.absolute()
        return cls.below(absolute.parent.parent, absolute.parent.name, absolute.name)

    @property
    def path(self) -> Path:
        """Return the path of the session's folder."""
        return self.root / self.group / self.session

    @property
    def key(self) -> str:
        """Return the name by which error messages identify the session."""
        return f"{self.group}/{self.session}"

    @property
    def inbound(self) -> Path:
        """Return the path of ``inbound.db``, which the host writes."""
        return self.path / INBOUND_DB

    @property
    def outbound(self) -> Path:
        """Return the path of ``outbound.db``, which the agent writes."""
        return self.path / OUTBOUND_DB

    def refuse_missing(self) -> None:
        """Raise `NotFound` unless both database files of the mailbox exist."""
        for file in (self.inbound, self.outbound):
            if not is_regular(file):
                with translate_errors(self.path):
                    lacking = f"it has no {file.name}" if files.is_directory(self.path) else None
                reason = mismatch_at(self.path, DIRECTORY) or mismatch_at(file) or lacking
                raise NotFound(MAILBOX, self.key, reason=reason)

    def _refuse_links(self) -> None:
        for path in (self.root / self.group, self.path):
            with translate_errors(path):
                is_link = files.is_link(path)
            if is_link:
                raise UnsafePath(str(path), "must not be a symbolic link")


def is_regular(path: Path) -> bool:
    """True if there is a regular file of this name. A link to one does not count."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
