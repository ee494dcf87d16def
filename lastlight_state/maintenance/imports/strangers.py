"""Recognises programs that this library cannot import, although their session files look like importable ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from lastlight_state.files.jsonl import files

_DAY = "[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]"
#: Patterns that find the files of each program, relative to the given path.
_PROGRAMS = {
    "Codex": (f"sessions/{_DAY}/rollout-*.jsonl", f"{_DAY}/rollout-*.jsonl", f".codex/sessions/{_DAY}/rollout-*.jsonl"),
    "Gemini CLI": (
        "tmp/*/chats/session-*.json",
        "*/chats/session-*.json",
        "chats/session-*.json",
        ".gemini/tmp/*/chats/session-*.json",
    ),
    "opencode": ("storage/session/*/*.json", "session/*/ses_*.json", "opencode.db"),
}


def program_at(path: Path) -> str | None:
    """Return the name of such a program if its session files are at a path, else None."""
    with suppress(OSError, ValueError):  # not a valid path, or it cannot be listed
        if files.is_directory(path):
            found = (name for name, told in _PROGRAMS.items() if any(next(path.glob(one), None) for one in told))
            return next(found, None)
    return None
