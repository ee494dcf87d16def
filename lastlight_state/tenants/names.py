"""The names of tenants, which are schemas and folders."""

from __future__ import annotations

import re

from lastlight_state.errors import InvalidValue

#: Of lower-case letters alone, because some file systems take upper-case ones for the same.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")
#: Schemas of Postgres, of Citus and of this library, and how others of theirs begin.
_TAKEN = ("public", "information_schema", "citus", "columnar")
_BEGINNINGS = ("pg_", "citus_", "columnar_", "lastlight_scratch_")

#: Holds the folders of tenants in each directory of the settings. A store without tenants may use the same directories:
#: no agent group and no file of a log has a name that begins like this.
FOLDER = "_tenants"


def is_name(name: str) -> bool:
    """True if a schema of this name may be a tenant."""
    return _NAME.fullmatch(name) is not None and name not in _TAKEN and not name.startswith(_BEGINNINGS)


def checked(name: object) -> str:
    """Return the name of a tenant. Raises `InvalidValue` for any other."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidValue(
            "name",
            "expected 1 to 63 lower-case letters, digits, underscores and hyphens, not a hyphen first, none of"
            f" {', '.join(_TAKEN)}, and not beginning with {', '.join(_BEGINNINGS)}; got {name!r:.80}",
        )
    return name
