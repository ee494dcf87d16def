"""What every kind of source gives to the import: units that can be read, compared and stored."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.db.unit import Unit
from lastlight_state.settings import Settings

#: The outcomes after which a unit is stored and noted.
STORED = ("imported", "grown")
#: The longest name of a unit in bytes, and how much of a longer one is kept.
_KEY, _KEPT = 256, 180


@dataclass(frozen=True)
class Into:
    """The store that is imported into."""

    now: datetime
    settings: Settings
    listeners: Any
    known_classes: KnownClasses
    #: Whether values that are refused are kept as text.
    lenient: bool = False


@dataclass(frozen=True)
class Look:
    """One look at what is stored of a unit.

    ``key`` names the unit in a source of ``kind``. ``planned`` has what earlier units of the same dry run would
    store, by table and key: it is empty in a run, where they are stored. ``receipt_id`` is that of the run.
    """

    view: Unit
    kind: str
    key: str
    revives: bool
    planned: defaultdict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    receipt_id: str = ""


class Piece(Protocol):
    """A unit that was read and checked. ``digest`` tells whether the source is as it was at the last import."""

    @property
    def digest(self) -> str:
        """Return the digest of everything that was read."""

    @property
    def target(self) -> tuple[str, str]:
        """The kind and the id of what it becomes."""

    @property
    def kept(self) -> Sequence[str]:
        """Return what the last comparison found changed here, too: it stays, and the report names it."""

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Return what happens with it: the outcome, the rows that are added by table, and what is noticed.

        The outcome is ``imported``, ``grown``, ``unchanged`` or ``pruned``. Raises an error of the library for a unit
        that is refused. Writes nothing.
        """

    def store(self, view: Unit, outcome: str) -> None:
        """Store it, in the transaction in which it was compared."""


#: Reads a unit, and checks it.
Read = Callable[[Into], Piece]


@dataclass(frozen=True)
class Part:
    """A unit that was found: its name in the source, and how to read it.

    ``read`` is None if it is not to be read. With ``left`` it is no unit, but so many rows without a place here: a
    report counts them in ``noticed`` as ``<key>_left``.
    """

    key: str
    read: Read | None
    left: int = 0


@dataclass(frozen=True)
class Server:
    """A database of another program on a Postgres server. As a text it shows no password."""

    url: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


#: Where a source is.
Place: TypeAlias = Path | Server


@dataclass(frozen=True)
class Kind:
    """A kind of source: its name, what it is found by, and its units. ``on_servers``: also on a Postgres server."""

    name: str
    looked_for: str
    found_at: Callable[[Any], bool]
    parts: Callable[[Any], Generator[Part]]
    on_servers: bool = False

    def takes(self, place: Place) -> bool:
        """True if a source of this kind may be there at all."""
        return self.on_servers or isinstance(place, Path)


def key_of(names: tuple[str, ...]) -> str:
    """The name of a unit: its path, or the beginning and a digest of a path that is too long."""
    data = os.fsencode("/".join(names))
    if len(data) > _KEY:
        digest = hashlib.sha256(data).hexdigest()[:32]
        return f"{data[:_KEPT].decode('utf-8', 'ignore')} {digest}"
    return data.decode("utf-8", "backslashreplace")
