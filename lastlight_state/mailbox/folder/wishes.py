"""The files that a message is sent with: their names, and what its content says of them. Pure."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.mailbox.arguments import Attachment
from lastlight_state.settings import Limits

_NAME_BYTES = 200
_DRIVE = 2
#: The longest ending that is kept of a name that is not.
_ENDING = 10


def checked(attachment: Any) -> Attachment:
    """A file as a caller gives it."""
    given = valid.group("attachment", attachment, Attachment)
    if not isinstance(given.data, bytes | Path):
        raise InvalidValue("attachment.data", f"expected bytes or a path, got {type(given.data).__name__}")
    valid.optional("attachment.mime", given.mime)
    return given


def refuse_large(files: Sequence[Attachment], limits: Limits) -> None:
    """Refuse more files, larger ones, or more bytes in all than a message may have, wherever their bytes stand."""
    if len(files) > limits.attachments:
        raise PayloadTooLarge("attachments", limit=limits.attachments, actual=len(files), unit="files")
    sizes = [_size(file) for file in files]
    largest, size = max(sizes, default=0), sum(sizes)
    if largest > limits.attachment:
        raise PayloadTooLarge("attachment.data", limit=limits.attachment, actual=largest)
    if size > limits.attachments_total:
        raise PayloadTooLarge("attachments", limit=limits.attachments_total, actual=size)


def is_safe(name: Any) -> bool:
    """Whether a file may have this name, on any system that people are likely to open it on."""
    if not isinstance(name, str) or name in {"", ".", ".."} or name != name.strip():
        return False
    if any(character in "/\\" or not character.isprintable() for character in name):
        return False
    return len(name.encode()) <= _NAME_BYTES and name[1:_DRIVE] != ":"


def names(wished: Iterable[Any]) -> list[tuple[str, bool]]:
    """The name that each file gets, and whether it is the wished one. No two are the same."""
    found: list[tuple[str, bool]] = []
    taken: set[str] = set()
    for number, wish in enumerate(wished, 1):
        name = wish if is_safe(wish) else f"attachment-{number}{_ending(wish)}"
        unique = _unique(name, taken)
        taken.add(unique.casefold())
        found.append((unique, unique == wish))
    return found


def with_files(content: Any, found: Sequence[str]) -> dict[str, Any]:
    """The content of an outbound message, with the names of its files."""
    if not isinstance(content, dict):
        raise InvalidValue("content", "must be an object when the message has files")
    return {**content, "files": [*found]}


def embedded(content: Any) -> list[tuple[int, Attachment]]:
    """The files whose bytes stand in the content of an inbound message as base64, by their place in its list."""
    entries = content.get("attachments") if isinstance(content, dict) else None
    found = []
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and "data" in entry:
            found.append((place, Attachment(entry.get("name"), _decoded(place, entry["data"]))))  # type: ignore[arg-type]
    return found


def described(
    content: Any, embedded_at: Sequence[int], given: Sequence[Attachment], kept: Sequence[tuple[str, bool]], folder: str
) -> Any:
    """The content of an inbound message, with the name and place of each file instead of its bytes.

    ``kept`` are the names of the embedded files and then those of the given ones.
    """
    if not kept:
        return content
    if not isinstance(content, dict):
        raise InvalidValue("content", "must be an object when the message has attachments")
    entries = list(content.get("attachments") or [])
    for place, (name, as_wished) in zip(embedded_at, kept, strict=False):
        entries[place] = _entry(entries[place], name, as_wished, folder)
    for file, (name, as_wished) in zip(given, kept[len(embedded_at) :], strict=True):
        entry = {"name": file.name} | ({} if file.mime is None else {"mimeType": file.mime})
        entries.append(_entry(entry, name, as_wished, folder))
    return {**content, "attachments": entries}


def _entry(entry: dict[str, Any], name: str, as_wished: bool, folder: str) -> dict[str, Any]:
    rest = {key: value for key, value in entry.items() if key != "data"}
    wished = {} if as_wished or rest.get("name") is None else {"originalName": rest["name"]}
    return {**rest, **wished, "name": name, "localPath": f"{folder}/{name}"}


def _size(file: Attachment) -> int:
    if isinstance(file.data, bytes):
        return len(file.data)
    try:
        found = file.data.stat()
    except OSError as error:
        raise InvalidValue("attachment.data", f"{file.data} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidValue("attachment.data", f"{file.data} is not a regular file")
    return found.st_size


def _decoded(place: int, data: Any) -> bytes:
    where = f"content.attachments[{place}].data"
    if not isinstance(data, str):
        raise InvalidValue(where, f"expected base64 text, got {type(data).__name__}")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidValue(where, "is not base64") from None


def _ending(wish: Any) -> str:
    """The ending of a name that is not kept, where it is harmless."""
    ending = PurePosixPath(wish).suffix if isinstance(wish, str) else ""
    return ending if len(ending) <= _ENDING and ending[1:].isascii() and ending[1:].isalnum() else ""


def _unique(name: str, taken: set[str]) -> str:
    path, number, found = PurePosixPath(name), 1, name
    while found.casefold() in taken:
        number += 1
        found = f"{path.stem}-{number}{path.suffix}"
    return found
