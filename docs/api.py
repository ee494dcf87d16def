"""Makes what the site adds to ``api.md``: all public names, from what the packages export."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

#: The packages whose names are public.
PACKAGES = (
    "lastlight_state",
    "lastlight_state.workflows",
    "lastlight_state.models",
    "lastlight_state.worker",
    "lastlight_state.schedules",
    "lastlight_state.messaging",
    "lastlight_state.conversations",
    "lastlight_state.checkpoints",
    "lastlight_state.states",
    "lastlight_state.journal",
    "lastlight_state.outputs",
    "lastlight_state.files.agent_log",
    "lastlight_state.files.run_log",
    "lastlight_state.files.mailbox",
    "lastlight_state.maintenance",
    "lastlight_state.receipts",
    "lastlight_state.migrations",
    "lastlight_state.tenants",
    "lastlight_state.inspector",
    "lastlight_state.testing",
)


def page() -> str:
    """Return a section for each package, with a table of its names."""
    return "\n".join("\n".join(_section(path)) + "\n" for path in PACKAGES)


def _section(path: str) -> Iterator[str]:
    package = import_module(path)
    yield f"## `{path}`"
    yield ""
    yield sentence(package)
    yield ""
    yield "| name | what it is |"
    yield "|---|---|"
    for name in sorted(package.__all__, key=str.lower):
        yield f"| `{name}` | {sentence(getattr(package, name))} |"


def sentence(of: Any) -> str:
    """Return the first sentence of what the object says of itself."""
    text = "" if isinstance(of, enum.Enum | str) else inspect.getdoc(of) or ""
    lines = text.partition("\n\n")[0].split("\n")
    first, stop, _ = " ".join(lines).partition(". ")
    return (first + stop).strip().replace("|", "\\|").replace("``", "`")
