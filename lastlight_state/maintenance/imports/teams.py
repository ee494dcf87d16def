"""Reads team files: each has one JSON object, with the members of a team and the messages that they sent each other.

The members of a team join a channel with the team's id, each with the inbox ``<team>/<name>``. Messages keep ids and
times, in the order of the file. ``*`` and an empty recipient mean all members. A message that was read is acknowledged,
unless a reader has taken it in the store.

A later import adds members, messages and read marks. The file must begin with the unchanged messages of its last
import, or it is refused. Members, messages and deliveries that were removed in the store are not imported again, unless
they are revived. A new member gets the messages that are still stored. A renamed file continues its team; a copy next
to the file is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from lastlight_state.clock import iso_text, of_file
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.lenient import as_text, fitting_message
from lastlight_state.maintenance.imports.pieces import ImportTarget, Kind, SourceUnit
from lastlight_state.maintenance.imports.run_folders import moment_of, object_in
from lastlight_state.maintenance.imports.team_pieces import Letter, Team, TeamPiece
from lastlight_state.special_files import DIRECTORY

FOLDER = "teams"
#: The known fields of a message in a team file. Other fields are kept in ``extra``.
_FIELDS = ("id", "from", "to", "content", "timestamp", "read_by")
#: The fields of a team file that are imported. The channel has no name of its own, and no place for other fields.
_TEAM = ("id", "members", "created_at", "messages")
_EVERYBODY = "*"
#: The fields of a message that never change, besides its time. Other fields may change in the file.
_SAID = ("id", "from", "content")


def found_at(path: Path) -> bool:
    """True if a path is a folder of team files, or the parent of such a folder."""
    return bool(_files(path))


def parts(path: Path) -> Generator[SourceUnit]:
    """Yield the teams of a folder, ordered by their file names."""
    for file in _files(path):
        name = os.fsencode(file.name).decode("utf-8", "backslashreplace")
        yield SourceUnit(name, partial(_read, file))


def _files(path: Path) -> list[Path]:
    folder = path if path.name == FOLDER else path / FOLDER
    return sorted(folder.glob("*.json"), key=lambda one: os.fsencode(one.name))


def _read(file: Path, into: ImportTarget) -> TeamPiece:
    seen, noticed = hashlib.sha256(), Counter[str]()
    told = object_in(file, "team", seen, noticed if into.lenient else None)
    given, changed = {"id": file.stem, **told}, of_file(file.stat().st_mtime_ns)
    return piece(given, changed, seen.hexdigest(), noticed, into, lambda name: os.path.lexists(file.with_name(name)))


def piece(
    told: dict[str, Any],
    changed: datetime,
    digest: str,
    noticed: Counter[str],
    into: ImportTarget,
    is_there: Callable[[str], bool] = lambda _: True,
) -> TeamPiece:
    """Return the team in an object that has the form of a team file. Its creation time defaults to ``changed``.

    ``is_there`` returns whether the folder has a file with a name.
    """
    team_id = valid.identifier("id", told["id"])
    reader = _Reader(into, noticed, team_id, _names("members", told.get("members")))
    began = moment_of(told.get("created_at"))
    noticed["created_at_approximate"] += began is None
    noticed.update(f"{as_text(name)}_left" for name, value in told.items() if name not in _TEAM and value is not None)
    began = began or changed
    letters = [
        reader.letter(f"messages[{i}]", one, began) for i, one in enumerate(_list("messages", told.get("messages")))
    ]
    members = tuple(reader.owner("members", one) for one in reader.members)
    seed = ascii([team_id, _time(told.get("created_at"))])
    return TeamPiece(Team(reader.channel, members, began, tuple(letters), digest, noticed, seed), into, is_there)


@dataclass(frozen=True)
class _Reader:
    """Reads the messages of a team."""

    into: ImportTarget
    noticed: Counter[str]
    team_id: str
    members: list[str]
    ids: set[str] = field(default_factory=set)

    @property
    def channel(self) -> str:
        """Return the id of the channel that the team gets in the store."""
        return self.team_id if self.into.scope is None else self.into.scoped_id(self.team_id)

    def owner(self, where: str, name: str) -> str:
        """Return the name of a member's inbox.

        It includes the team, because two teams may have a member of the same name.
        """
        return valid.identifier(where, self.into.scoped_id(self.team_id, name))

    def letter(self, where: str, told: Any, began: datetime) -> Letter:
        """Return a message with its inboxes, and the times at which it was read in them."""
        if not isinstance(told, dict) or not isinstance(told.get("id"), str):
            raise InvalidValue(f"{where}.id", "must be given")
        if told["id"] in self.ids:
            raise InvalidValue(f"{where}.id", f"another message has the id {told['id']!r:.80}")
        self.ids.add(told["id"])
        sent = moment_of(told.get("timestamp"))
        self.noticed["sent_at_approximate"] += sent is None
        owners = self._owners(f"{where}.to", told.get("to"))
        read = self._read_by(f"{where}.read_by", told.get("read_by"), sent or began)
        self.noticed["read_by_others"] += len(read.keys() - set(owners))
        message = self._message(where, told, sent or began, owners)
        said = ascii([*(told.get(name) for name in _SAID), _time(told.get("timestamp"))])
        return Letter(message, tuple(owners), {one: at for one, at in read.items() if one in owners}, said)

    def _message(self, where: str, told: dict[str, Any], sent: datetime, owners: list[str]) -> NewMessage:
        sender = told.get("from")
        one = NewMessage(
            id=told["id"] if self.into.scope is None else self.into.scoped_id(told["id"]),
            role="user",
            content=told["content"] if told.get("content") is not None else "",
            created_at=sent,
            sender=None if sender is None else self.owner(f"{where}.from", _text(f"{where}.from", sender)),
            recipient=owners[0] if len(owners) == 1 else None,
            channel=self.channel,
            extra={name: value for name, value in told.items() if name not in _FIELDS} or None,
        )
        return fitting_message(one, self.into.now, self.noticed) if self.into.lenient else one

    def _owners(self, where: str, told: Any) -> list[str]:
        """Return the inboxes of the recipients. An empty recipient and ``*`` mean all members."""
        names = [one.strip() for one in told.split(",")] if isinstance(told, str) else _names(where, told)
        named = [one for one in names if one]
        if not named or _EVERYBODY in named or told == "all":
            named = self.members
        self.noticed["recipient_no_member"] += len(set(named) - set(self.members))
        return list(dict.fromkeys(self.owner(where, one) for one in named))

    def _read_by(self, where: str, told: Any, sent: datetime) -> dict[str, datetime]:
        """Return the inboxes in which a message was read, each with the time. Older files have only a list of names."""
        marks = told if isinstance(told, dict) else dict.fromkeys(_names(where, told))
        return {self.owner(where, name): moment_of(at) or sent for name, at in marks.items()}


def _time(told: Any) -> str | None:
    """Return a time in one format, which is the same for files and databases."""
    found = moment_of(told)
    return None if found is None else iso_text(found)


def _list(where: str, told: Any) -> list[Any]:
    if told is not None and not isinstance(told, list):
        raise InvalidValue(where, f"expected a list, got {type(told).__name__}")
    return told or []


def _names(where: str, told: Any) -> list[str]:
    return list(dict.fromkeys(_text(where, one) for one in _list(where, told)))


def _text(where: str, told: Any) -> str:
    if not isinstance(told, str):
        raise InvalidValue(where, f"expected a name, got {type(told).__name__}")
    return told


#: The kind of source.
KIND = Kind(
    "lionagi-teams", "a folder teams with *.json", found_at, parts, has_names=True, has_files=True, wants=DIRECTORY
)
