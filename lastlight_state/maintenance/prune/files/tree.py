"""A directory of logs that can be pruned: each is one file, or one with a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune.places import Place
from lastlight_state.settings import Settings


class Size(NamedTuple):
    """How many files a log has, and their bytes."""

    files: int
    bytes: int


class Seen(NamedTuple):
    """A look at a tree: the place of each log in the order of age, the oldest first, and what stays by the reason."""

    logs: Sequence[Place]
    staying: Mapping[str, int]


class Tree(Protocol):
    """One kind. The key of a log tells it from all others; its id is how a policy names it."""

    #: The kind of the policy, and what `NotFound` calls a log.
    name: ClassVar[str]
    record: ClassVar[str]
    keep_days: ClassVar[int]
    keep_n: ClassVar[int]
    #: Whether a tombstone says of a log that it was pruned. Rows may go on naming it.
    buried: ClassVar[bool]

    #: Where the logs are.
    root: Path

    def __init__(self, settings: Settings) -> None:
        """The tree of these settings. Touches no file."""

    def seen(self, cutoff: datetime) -> Seen:
        """All logs that may be pruned once they are old enough, and how many that are as old stay in any case."""

    def id_of(self, key: str) -> str:
        """The id of a log."""

    def protected(self, unit: Unit, keys: Sequence[str]) -> Mapping[str, str]:
        """Those of these logs that must stay, each with the reason."""

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """What would be removed with a log; None for one that must stay, because it is not as old as it seems."""

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log that is as old. Returns whether it is gone; one that somebody uses at this moment stays."""
