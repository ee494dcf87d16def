"""SQL that is put together as text: quoted names, literals, and a condition that ends a script.

An upgrade that is written as a script runs without this program, so the script itself must stop when its query finds
a row that forbids the upgrade.
"""

from __future__ import annotations

from lastlight_state.errors import NotSupported


def quoted(name: str) -> str:
    """The name as a quoted identifier. SQLAlchemy's own quoting doubles ``%``, which is wrong without parameters."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a literal."""
    return "'" + text.replace("'", "''") + "'"


_TABLE = "lastlight_refusal"


def refusal(product: str, query: str, message: str) -> tuple[str, ...]:
    """The statements that fail, saying ``message``, when ``query`` finds anything."""
    if product == "postgresql":
        raises = f"RAISE EXCEPTION USING ERRCODE = 'LL001', MESSAGE = {literal(message)}"
        return (f"DO $refusal$ BEGIN IF EXISTS ({query}) THEN {raises}; END IF; END $refusal$",)
    if product == "sqlite":  # SQLite shows a text of ours only as the name of a failed constraint
        return (
            f"CREATE TEMP TABLE {_TABLE} (found INTEGER CONSTRAINT {quoted(message)} CHECK (found IS NULL))",
            f"INSERT INTO temp.{_TABLE} SELECT 1 WHERE EXISTS ({query})",
            f"DROP TABLE temp.{_TABLE}",
        )
    raise NotSupported(f"a script for {product} cannot stop at a condition")
