"""Run folders of the third seed's program, as it writes them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

#: Unix seconds: 2026-01-05 10:00 UTC.
BEGIN = 1_767_607_200.0


def message(name: str, second: float, role: str = "user", **more: Any) -> dict[str, Any]:
    """A message of a branch file."""
    lion = {"lion_class": f"lionagi.protocols.messages.{role}"}
    return {"id": name, "created_at": BEGIN + second, "role": role, "content": {"text": name}, "metadata": lion, **more}


def branch(name: str, messages: list[Any], order: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A branch file. Without ``order`` all messages stand in theirs."""
    order = [one["id"] for one in messages] if order is None else order
    return {"id": name, "messages": {"collections": messages, "progression": {"order": order}}, **more}


def write_run(root: Path, name: str, *branches: dict[str, Any], **manifest: Any) -> Path:
    """A run folder, whose files were changed last when it began."""
    folder = root / name
    (folder / "branches").mkdir(parents=True, exist_ok=True)
    told = {"run_id": name, "kind": "agent", "started_at": BEGIN, "ended_at": BEGIN + 60, "status": "completed"}
    write(folder / "run.json", {**told, **manifest})
    for i, one in enumerate(branches):
        write(folder / "branches" / f"b{i}.json", one)
    return folder


def write(path: Path, value: Any) -> None:
    """A file with this text, or with this as JSON."""
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    for one in (path, path.parent):
        os.utime(one, (BEGIN, BEGIN))


def bytes_of(root: Path) -> dict[str, tuple[str, int]]:
    """The digest and the time of change of every file."""
    files = sorted(one for one in root.rglob("*") if one.is_file())
    return {
        str(one.relative_to(root)): (hashlib.sha256(one.read_bytes()).hexdigest(), one.stat().st_mtime_ns)
        for one in files
    }
