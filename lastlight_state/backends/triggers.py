"""Guard triggers: what the database itself refuses, whoever asks, rendered for each product.

A `Guard` says *when* a statement is refused. Conditions are written once, over ``OLD`` and ``NEW``, with
``IS DISTINCT FROM`` for comparisons that treat NULL as a value. A *permitted* guard lets the statement through while
``maintenance_permits`` holds a row (see `lastlight_state.receipts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Event = Literal["insert", "update", "delete", "truncate"]

REFUSE = "lastlight_refuse"
REFUSE_UNLESS_PERMITTED = "lastlight_refuse_unless_permitted"
SQLSTATE_CLASS = "LL"


@dataclass(frozen=True)
class Guard:
    """One refusal. ``permit`` names the receipts whose permit opens it: any, ``reset`` alone, or none.

    ``only`` names the one product that needs the guard; elsewhere it renders to nothing.
    """

    name: str
    table: str
    event: Event
    message: str
    when: str | None = None
    permit: Literal["any", "reset"] | None = None
    of: tuple[str, ...] = ()
    only: Literal["sqlite", "postgresql"] | None = None


def sqlite_ddl(guard: Guard) -> Iterator[str]:
    """The CREATE TRIGGER of a guard on SQLite; nothing for TRUNCATE, which does not exist there."""
    if guard.event == "truncate" or guard.only == "postgresql":
        return
    conditions = [guard.when.replace("IS DISTINCT FROM", "IS NOT")] if guard.when else []
    if guard.permit:
        conditions = [f"({condition})" for condition in conditions]
        conditions.append(f"NOT EXISTS (SELECT 1 FROM maintenance_permits{_permit_filter(guard)})")
    when = f" WHEN {' AND '.join(conditions)}" if conditions else ""
    of = f" OF {', '.join(guard.of)}" if guard.of else ""
    yield (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.event.upper()}{of} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{_quoted(guard.message)}'); END"
    )


def postgres_ddl(guard: Guard) -> Iterator[str]:
    """The CREATE TRIGGER of a guard on Postgres. Conditions stand in WHEN: a write that passes calls nothing."""
    if guard.only == "sqlite":
        return
    function = REFUSE_UNLESS_PERMITTED if guard.permit else REFUSE
    arguments = [guard.message] + ([guard.permit] if guard.permit else [])
    listed = ", ".join(f"'{_quoted(word)}'" for word in arguments)
    of = f" OF {', '.join(guard.of)}" if guard.of else ""
    when = f" WHEN ({guard.when})" if guard.when else ""
    each = "STATEMENT" if guard.event == "truncate" else "ROW"
    yield (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.event.upper()}{of} ON {guard.table} FOR EACH {each}{when} "
        f"EXECUTE FUNCTION {function}({listed})"
    )


def postgres_functions() -> Iterator[str]:
    """The two functions that the triggers call, bound to the schema they are created in."""
    yield _FUNCTION.format(name=REFUSE, body=_RAISE)
    yield _FUNCTION.format(name=REFUSE_UNLESS_PERMITTED, body=_PERMITTED + _RAISE)


_RAISE = "RAISE EXCEPTION USING ERRCODE = 'LL001', MESSAGE = TG_ARGV[0];"
_PERMITTED = (
    "IF EXISTS (SELECT 1 FROM maintenance_permits WHERE TG_ARGV[1] = 'any' OR receipt_id = TG_ARGV[1]) THEN "
    "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END IF; "
)
_FUNCTION = (
    "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT "
    "AS $guard$ BEGIN {body} END $guard$"
)


def _permit_filter(guard: Guard) -> str:
    return " WHERE receipt_id = 'reset'" if guard.permit == "reset" else ""


def _quoted(text: str) -> str:
    return text.replace("'", "''")
