"""What `Tenants` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tenant:
    """A schema of this library: its name, its revision, and its bytes with indexes, if they were asked for.

    ``state`` compares the revision with the newest that this version knows; ``foreign`` is none of ours.
    """

    name: str
    revision: str | None
    state: Literal["behind", "current", "ahead", "foreign"]
    size_bytes: int | None = None


@dataclass(frozen=True)
class FailedTenant:
    """A tenant that could not be migrated: the code and the text of its error."""

    name: str
    code: str
    error: str


@dataclass(frozen=True)
class MigratedTenants:
    """The result of `Tenants.migrate`, by name. ``current`` are those for which there was nothing to do."""

    migrated: tuple[str, ...]
    current: tuple[str, ...]
    failed: tuple[FailedTenant, ...]


@dataclass(frozen=True)
class ErasedTenant:
    """A tenant that was erased, or that would be: the bytes of its tables, and its files on this machine."""

    name: str
    revision: str | None
    size_bytes: int
    files: int
    erased: bool
