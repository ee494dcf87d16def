"""The names of tenants, which are also names of schemas and folders."""

from __future__ import annotations

import re

from lastlight_state.errors import InvalidValue

#: Lower-case only, because some file systems do not distinguish upper-case letters.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")
#: Reserved schema names of Postgres, Citus and this library, and reserved prefixes.
_TAKEN = ("public", "information_schema", "citus", "columnar")
_BEGINNINGS = ("pg_", "citus_", "columnar_", "lastlight_scratch_")

#: The folder, in each directory of the settings, that holds one folder per tenant. A store without tenants may use the
#: same directories, since no agent group and no log file has a name with this prefix.
FOLDER = "_tenants"


def is_name(name: str) -> bool:
    """True if a tenant's schema may have this name."""
    return _NAME.fullmatch(name) is not None and name not in _TAKEN and not name.startswith(_BEGINNINGS)


def check_name(name: object) -> str:
    """Return a tenant's name unchanged. Raises `InvalidValue` if no tenant may have it."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidValue(
            "name",
            "expected 1 to 63 lower-case letters, digits, underscores and hyphens, not a hyphen first, none of"
            f" {', '.join(_TAKEN)}, and not beginning with {', '.join(_BEGINNINGS)}; got {name!r:.80}",
        )
    return name
