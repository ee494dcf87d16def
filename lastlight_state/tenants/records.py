"""The records that `Tenants` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tenant:
    """A tenant: its name, its revision, and its bytes (with indexes) if they were requested.

    ``state`` compares the revision with the newest that this version knows. ``foreign`` means that the schema has no
    revision of this library.
    """

    name: str
    revision: str | None
    state: Literal["behind", "current", "ahead", "foreign"]
    size_bytes: int | None = None


@dataclass(frozen=True)
class FailedTenant:
    """A tenant that could not be migrated: its name, and the code and text of the error."""

    name: str
    code: str
    error: str


@dataclass(frozen=True)
class MigratedTenants:
    """The result of `Tenants.migrate`: names of tenants. ``current`` are those that needed no migration."""

    migrated: tuple[str, ...]
    current: tuple[str, ...]
    failed: tuple[FailedTenant, ...]


@dataclass(frozen=True)
class ErasedTenant:
    """An erased tenant, or one that would be: revision, bytes of its tables, number of its files on this machine."""

    name: str
    revision: str | None
    size_bytes: int
    files: int
    erased: bool
