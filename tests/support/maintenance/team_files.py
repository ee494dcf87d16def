"""Team files of the third seed's program, as it writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.maintenance.run_folders import BEGIN, write


def told(second: float) -> str:
    """A time as the program writes it."""
    return datetime.fromtimestamp(BEGIN + second, UTC).isoformat()


def letter(name: str, second: float, to: Any = ("*",), **more: Any) -> dict[str, Any]:
    """A message of a team; whom it is from is ``sender``."""
    to = list(to) if isinstance(to, tuple) else to
    sent = {"from": more.pop("sender", "ana"), "to": to, "timestamp": told(second), "read_by": {}}
    return {"id": name, "content": f"about {name}", **sent, **more}


def write_team(root: Path, name: str, *messages: Any, **more: Any) -> Path:
    """The file of a team with the members ana, bo and cy."""
    (root / "teams").mkdir(exist_ok=True)
    path = root / "teams" / f"{name}.json"
    team = {"id": name, "name": f"team {name}", "members": ["ana", "bo", "cy"], "messages": list(messages)}
    write(path, json.dumps({**team, "created_at": told(0), **more}))
    return path
