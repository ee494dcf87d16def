"""A question of a person's own, in SQL: Postgres itself refuses whatever would write.

It runs inside a READ ONLY transaction as the query of a cursor, which can only be a SELECT, VALUES or WITH without
changes, sent by the protocol that takes one statement. A savepoint takes back what it may have set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg

from lastlight_state.backends.postgres.errors import translate
from lastlight_state.backends.postgres.pool import await_answers
from lastlight_state.errors import InvalidValue, ReadOnlyTransaction, StateError

_CURSOR = "lastlight_question"
#: Of the cursor, so that what is explained is what `ask` runs, and nothing is run: EXPLAIN by itself takes more. Asked
#: with ``binary``, which is the protocol that takes one statement.
_PLAN = f"EXPLAIN DECLARE {_CURSOR} CURSOR FOR "
#: Locks of the session outlive a rollback, and the connection is used again; ours are all of transactions.
_TAKE_BACK = "ROLLBACK TO SAVEPOINT lastlight_question; SELECT pg_advisory_unlock_all()"
#: Texts, quoted names, dollar-quoted texts, comments and casts, in which a colon names nothing; then a name; then %.
_TOKENS = re.compile(
    r"""
    (?P<kept> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
            | --[^\n]* | /\*.*?\*/ | :: )
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<percent>%)
    """,
    re.VERBOSE | re.DOTALL,
)
#: A write, a change of the transaction's own rights, and a write in a WITH.
#: A parameter of the protocol's own, such as ``$1``, for which there is no value.
_UNBOUND = "08P01"
_READ_ONLY = frozenset({"25006", "25001", "0A000"})


def ask(
    driver: psycopg.Connection[Any], sql: str, params: Mapping[str, Any], limit: int, timeout: float, *, plan: bool
) -> tuple[list[str], list[Any]]:
    """The names of the columns, and at most ``limit`` rows as the driver gives them, or of the statement's ``plan``."""
    text = _TOKENS.sub(_placed, sql)
    try:
        driver.execute("SAVEPOINT lastlight_question")
        try:
            driver.execute(f"SET LOCAL statement_timeout = {max(1, int(timeout * 1000))}")
            await_answers(driver, timeout)
            with driver.cursor(binary=True) if plan else driver.cursor(_CURSOR) as cursor:
                cursor.execute(_PLAN + text if plan else text, dict(params))
                return [column.name for column in cursor.description or ()], cursor.fetchmany(limit)
        finally:
            if not driver.closed:
                driver.execute(_TAKE_BACK)
    except psycopg.Error as error:
        raise _refusal(error) from error
    except UnicodeEncodeError:
        raise InvalidValue("params", "lone surrogate") from None
    except ValueError as error:  # of the JSON parser: the server stores larger numbers than it reads
        raise InvalidValue("value", str(error)) from None


def _placed(match: re.Match[str]) -> str:
    if match["name"]:
        return f"%({match['name']})s"
    return match[0].replace("%", "%%")


def _refusal(error: psycopg.Error) -> StateError:
    state = error.sqlstate or ""
    if state in _READ_ONLY:
        return ReadOnlyTransaction("a query may only read")
    if isinstance(error, psycopg.ProgrammingError) and not state:  # a parameter that is not given
        return InvalidValue("params", str(error))
    if state == _UNBOUND or (state.startswith(("42", "22")) and state != "42501"):
        return InvalidValue("sql", str(error).splitlines()[0])
    return translate(error)
