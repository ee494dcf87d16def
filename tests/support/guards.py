"""The triggers of declared guards and reactions as SQL, to compare with what the revisions make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lastlight_state.db.schema.guards import EVENTS, DerivedRow, Guard, Reaction
from lastlight_state.migrations.metadata import DERIVED_ROWS
from lastlight_state.testing import Database

#: Inserts nothing, unless the statement that fired the trigger replaces rows: its policy becomes that of the trigger's
#: own statements, and REPLACE stores a column's default instead of NULL.
PROBE = (
    "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL); "
    "{refusal} WHERE EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"
)
REFUSE = "lastlight_refuse"
REFUSE_UNLESS_PERMITTED = "lastlight_refuse_unless_permitted"


def statements_of(guard: Guard, product: str) -> Iterator[str]:
    """The statements that create a guard; none where the product does not need it."""
    return {"sqlite": _on_sqlite, "postgresql": _on_postgres}[product](guard)


def _on_sqlite(guard: Guard) -> Iterator[str]:
    """Nothing for TRUNCATE, which SQLite does not have."""
    if guard.event == "truncate" or guard.only == "postgresql":
        return
    conditions = [guard.when.replace("IS DISTINCT FROM", "IS NOT")] if guard.when else []
    if guard.permit:
        conditions = [f"({condition})" for condition in conditions]
        conditions.append(f"NOT EXISTS (SELECT 1 FROM maintenance_permits{_permit_filter(guard)})")
    when = f" WHEN {' AND '.join(conditions)}" if conditions else ""
    of = f" OF {', '.join(guard.of)}" if guard.of else ""
    refusal = f"SELECT RAISE(ABORT, '{_quoted(guard.message)}')"
    body = PROBE.format(refusal=refusal) if guard.replacing else refusal
    yield (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.event.upper()}{of} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN {body}; END"
    )


def _on_postgres(guard: Guard) -> Iterator[str]:
    """The condition stands in WHEN, so that a write that passes calls no function; words stand in one constant."""
    if guard.only == "sqlite":
        return
    function = REFUSE_UNLESS_PERMITTED if guard.permit else REFUSE
    arguments = [guard.message] + ([guard.permit] if guard.permit else [])
    listed = ", ".join(f"'{_quoted(word)}'" for word in arguments)
    of = f" OF {', '.join(guard.of)}" if guard.of else ""
    few = re.compile(r"NOT IN \('(.+?)'\)")
    condition = few.sub(lambda found: "<> ALL ('{" + found[1].replace("', '", ",") + "}'::text[])", guard.when or "")
    when = f" WHEN ({condition})" if condition else ""
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


def reacting(reaction: Reaction, product: str) -> Iterator[str]:
    """The statements that create the triggers of a reaction."""
    if reaction.only not in (None, product):
        return
    if product == "postgresql":
        yield _reacting_function(reaction)
    for event, keys in EVENTS.items():
        body = f"BEGIN {reaction.statement(keys.format(key=reaction.key))}; END"
        action = body if product == "sqlite" else f"EXECUTE FUNCTION {reaction.function}()"
        yield (
            f"CREATE TRIGGER {reaction.name}_{event} AFTER {event.upper()} ON {reaction.table} FOR EACH ROW {action}"
        )


def _reacting_function(reaction: Reaction) -> str:
    """It locks before it looks, and does nothing for a role that may not change the rows."""
    keys = EVENTS["update"].format(key=reaction.key)
    rights = ((reaction.target, "SELECT"), (reaction.target, "UPDATE"), (reaction.table, "SELECT"))
    may = " AND ".join(f"has_table_privilege('{table}', '{right}')" for table, right in rights)
    return (
        f"CREATE FUNCTION {reaction.function}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT "
        f"AS $reaction$ BEGIN IF {may} THEN "
        f"PERFORM {reaction.key} FROM {reaction.target} WHERE {reaction.key} IN ({keys}) FOR NO KEY UPDATE; "
        f"{reaction.statement(keys)}; END IF; RETURN NULL; END $reaction$"
    )


def deriving(derived: DerivedRow, product: str) -> Iterator[str]:
    """The statements that create the triggers of derived rows."""
    if product == "postgresql":
        for function, statement in zip(derived.functions, (derived.put, derived.drop), strict=True):
            yield (
                f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
                f"SET search_path FROM CURRENT AS $derived$ BEGIN {statement}; RETURN NULL; END $derived$"
            )
    for name, event, condition, statement, function in derived.triggers():
        on = f"CREATE TRIGGER {name} AFTER {event} ON {derived.table} FOR EACH ROW"
        if product == "sqlite":
            yield f"{on} WHEN {condition.replace('IS DISTINCT FROM', 'IS NOT')} BEGIN {statement}; END"
        else:
            yield f"{on} WHEN ({condition}) EXECUTE FUNCTION {function}()"


def unguarded(database: Database) -> Any:
    """A plain connection that no guard refuses anything; on SQLite the guards are gone for all."""
    raw = database.raw()
    if database.name == "sqlite":
        without_guards(raw)
    else:
        raw.execute("SET session_replication_role = replica")
    return raw


def without_guards(raw: Any) -> None:
    """Drop the guards of a SQLite database, so that plain SQL can store what the database would refuse.

    What keeps rows beside others stays.
    """
    kept = {name for derived in DERIVED_ROWS for name, *_ in derived.triggers()}
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        if name not in kept:
            raw.execute(f"DROP TRIGGER {name}")
