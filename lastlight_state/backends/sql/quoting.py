"""Names and texts in SQL that goes to a driver as it stands.

A condition in a script: statements that end it when a query finds a row.

A script has no program around it that could look at rows and stop. Each product has one way of its own.
"""

from __future__ import annotations

from lastlight_state.errors import NotSupported


def quoted(name: str) -> str:
    """The name as a quoted identifier. SQLAlchemy's own quoting doubles ``%``, for statements that carry parameters."""
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
    if product == "sqlite":  # an error with a text of its own is to be had from a constraint's name alone
        return (
            f"CREATE TEMP TABLE {_TABLE} (found INTEGER CONSTRAINT {quoted(message)} CHECK (found IS NULL))",
            f"INSERT INTO temp.{_TABLE} SELECT 1 WHERE EXISTS ({query})",
            f"DROP TABLE temp.{_TABLE}",
        )
    raise NotSupported(f"a script for {product} cannot stop at a condition")
