"""What an import left of a session, by which the next one knows what has changed here since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lastlight_state import codec

#: The version of what differs from the source since before this import: it is never that of a row.
DIFFERS = -1


@dataclass(frozen=True)
class Base:
    """The versions that an import left: of the session, of the history of its status, and of orders by their ids.

    ``version`` and ``seq`` are None for a session that an older version of this library imported.
    """

    digest: str
    version: int | None = None
    seq: int | None = None
    orders: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, noted: str | None) -> Base:
        """Return the base that a line of the ledger says."""
        digest, _, told = (noted or "").partition(" ")
        return cls(digest, **codec.decode(told)) if told else cls(digest)

    def text(self) -> str:
        """Return the base as a line of the ledger says it."""
        told = {"version": self.version, "seq": self.seq, "orders": dict(self.orders)}
        return f"{self.digest} {codec.canonical(told).decode()}"
