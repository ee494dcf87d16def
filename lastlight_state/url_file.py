"""Reads the URL of a database from a file, where neither a process list nor an environment shows its password."""

from __future__ import annotations

from pathlib import Path

from lastlight_state.errors import InvalidValue


def url_in(file: Path, where: str) -> str:
    """The URL that the file holds, without the white space around it.

    ``where`` is what named the file. Raises `InvalidValue` naming both, and never what the file holds.
    """
    try:
        url = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidValue(where, f"{file}: {reason}") from None
    if len(url.splitlines()) != 1:
        raise InvalidValue(where, f"{file}: expected one line with a URL, got {len(url.splitlines()) or 'none'}")
    return url
