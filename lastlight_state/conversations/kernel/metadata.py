"""Changing the metadata of a row: by a merge patch (RFC 7396), and never the keys that mirror a fork."""

from __future__ import annotations

from typing import Any

from lastlight_state.errors import InvalidValue

#: The keys of a branch's metadata that say the same as its columns.
FORK_KEYS = ("parent_branch_id", "forked_at_ord")


def merged(stored: Any, patch: Any) -> Any:
    """The value with the patch applied: objects are merged, null removes a key, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(stored) if isinstance(stored, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def refuse_fork_keys(where: str, patch: dict[str, Any]) -> None:
    """Refuse a patch that names a key of a fork."""
    for key in FORK_KEYS:
        if key in patch:
            raise InvalidValue(f"{where}.{key}", "says where a branch comes from, which never changes")
