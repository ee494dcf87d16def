"""Argument groups of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Content(NamedTuple):
    """Bytes that only the caller can read, and the caller's word for how they are to be read."""

    format: str
    data: bytes


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint to store.

    ``versions`` names the version of each channel, and ``values`` brings the values of those that are new: a version
    has one value, whichever checkpoints name it. A channel whose version has no value is without one. ``run_ref`` says
    in the caller's words what made it, for deletion; ``metadata`` is JSON that lists can be filtered by.
    """

    id: str
    content: Content
    versions: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Content] = field(default_factory=dict)
    namespace: str = ""
    parent_id: str | None = None
    run_ref: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True)
class NewWrite:
    """What a task wrote to a channel. ``idx`` is its place among the writes of the task, and may be negative."""

    idx: int
    channel: str
    content: Content
    path: str = ""
