"""What the database refuses about conversations: to delete from them, to change where a branch comes from or how a
status changed. Feeds have no guard: their rows are hints, and are removed by `changes.trim`.

A link can be deleted only when its position is below 0, where `progressions.replace` puts those that leave an order. So
a stray DELETE is refused, and a replaced order needs no permit.
"""

from __future__ import annotations

from lastlight_state.conversations.tables import TRANSITIONS
from lastlight_state.db.declarations import is_personal
from lastlight_state.db.guards import Guard, Key, append_only, declare, no_replacement, no_replacing_insert, no_update

_WORDS = ("message_types", "invocation_kinds", "source_kinds")
_LINKS = "progression_links"
_TRANSITIONS = "session_transitions"
#: The tables of the exchange, with their keys.
_EXCHANGE = {
    "exchange_inboxes": (Key(("owner",)),),
    "exchange_deliveries": (Key(("owner", "ord")), Key(("owner", "message_id"))),
    "exchange_members": (Key(("channel", "member")),),
}

APPEND_ONLY = declare(
    [
        *(guard for table in _WORDS for guard in (*append_only(table), *no_update(table))),
        *(guard for table in _WORDS for guard in no_replacing_insert(table)),
        *(guard for table in ("messages", "progressions", "sessions", "branches") for guard in append_only(table)),
        *(
            guard
            for table in ("messages", "progressions", "sessions", "branches")
            for guard in no_replacement(table, Key(("id",)))
        ),
        Guard(f"{_LINKS}_no_delete", _LINKS, "delete", f"{_LINKS} is append-only", when="OLD.ord >= 0", permit="any"),
        Guard(f"{_LINKS}_no_truncate", _LINKS, "truncate", f"{_LINKS} is append-only", permit="any"),
        *no_replacement(_LINKS, Key(("progression_id", "ord"))),
        *append_only(_TRANSITIONS, permit="reset"),
        Guard(
            f"{_TRANSITIONS}_no_update",
            _TRANSITIONS,
            "update",
            f"rows of {_TRANSITIONS} never change",
            permit="any",
        ),
        *no_replacement(_TRANSITIONS, Key(("id",)), Key(("session_id", "seq"))),
        *(guard for table in _EXCHANGE for guard in append_only(table)),
        *(guard for table, keys in _EXCHANGE.items() for guard in no_replacement(table, *keys)),
    ]
)

_ORIGIN = ("session_id", "progression_id", "parent_branch_id", "forked_at_ord", "fork_depth")

ORIGIN = declare(
    [
        Guard(
            "branches_origin_stays",
            "branches",
            "update",
            "where a branch comes from never changes",
            when=" OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in _ORIGIN),
        )
    ]
)

_TOLD = [column.name for column in TRANSITIONS.columns if is_personal(column)]
_CHANGED = [column.name for column in TRANSITIONS.columns if not is_personal(column)]

#: A change of status stays for ever. Who made it and what was said of it can be emptied, for a person who is erased.
EMPTIED = declare(
    [
        Guard(
            f"{_TRANSITIONS}_only_emptied",
            _TRANSITIONS,
            "update",
            f"rows of {_TRANSITIONS} never change: only {', '.join(_TOLD[:-1])} and {_TOLD[-1]} can become NULL",
            when=" OR ".join(
                [
                    *(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in _CHANGED),
                    *(f"(NEW.{name} IS NOT NULL AND NEW.{name} IS DISTINCT FROM OLD.{name})" for name in _TOLD),
                ]
            ),
        )
    ]
)


def _unknown(column: str, table: str) -> str:
    return f"NEW.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {table} WHERE word = NEW.{column})"


#: SQLite's foreign keys bind only clients that switch them on.
WORDS = declare(
    Guard(
        f"sessions_{column}_known_{event}",
        "sessions",
        event,
        f"unknown {column}",
        when=_unknown(column, table),
        of=(column,) if event == "update" else (),
        only="sqlite",
    )
    for column, table in (("invocation_kind", "invocation_kinds"), ("source_kind", "source_kinds"))
    for event in ("insert", "update")
)
