"""What a column of a source holds arrives somewhere, or the report names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.maintenance.every_value import filled, unseen
from support.maintenance.originals import BEGIN, database
from support.maintenance.state_databases import put_order

#: Words and references of a state database; everything else is a value of its own.
STATE: dict[str, dict[str, Any]] = {
    "message_types": {"type_id": 77},
    "messages": {"lion_class": 77, "role": "user"},
    "progressions": {"id": "pool", "collection": json.dumps(["messages.id"])},
    "sessions": {
        "progression_id": "pool",
        "first_msg_id": "messages.id",
        "last_msg_id": "messages.id",
        "updated_at": BEGIN + 5_000.25,
        "invocation_kind": "flow",
        "source_kind": "imported_fs",
        "status": "completed",
        "status_reason_code": "run.failed.exit_code",
        "ended_at_is_approximate": 1,
    },
    "teams": {"members": '["bo"]'},
    "team_messages": {"team_id": "teams.id", "sender": "ana", "recipient": "bo", "read_by": '["bo"]'},
    "branches": {
        "session_id": "sessions.id",
        "progression_id": "order",
        "system_msg_id": "messages.id",
        "status": "failed",
    },
    "status_transitions": {
        "entity_type": "session",
        "entity_id": "sessions.id",
        "previous_status": "running",
        "status": "completed",
        "reason_code": "run.completed.ok",
        "source": "admin",
    },
}


def _conversations(store: Any) -> Iterator[Any]:
    """All that the store says of its only session."""
    talks = store.conversations
    [summary] = talks.sessions.list().items
    session = talks.sessions.get(summary.id)
    yield session
    yield talks.lifecycle.history(session.id).items
    orders = [session.progression_id]
    for summary in talks.branches.list(session.id).items:
        branch = talks.branches.get(summary.id)
        orders.append(branch.progression_id)
        yield branch
    [member] = talks.exchange.members("teams.id").items
    yield [member, *member.member.split("/")]
    [delivery] = talks.exchange.inbox("teams.id/bo", state="all").items
    message = talks.messages.get(delivery.message_id)
    yield [message, *message.sender.split("/")]
    for one in orders:
        yield talks.progressions.get(one)
        yield list(talks.messages.get_many(talks.progressions.collection(one)).values())


def test_every_value_of_a_state_database_arrives_or_is_named(store: Any, tmp_path: Path) -> None:
    """maintenance OP-4, OP-80: of every column of every table that the newest version makes."""
    source = database(tmp_path / "state.db")
    cells = filled(source, STATE, begin=BEGIN, but=["schema_meta"])
    put_order(source, "order", ["messages.id"])
    done = store.maintenance.imports.run(source)
    assert (done.units, done.failures) == ({"imported": 2}, ())
    # a number of a class, for which its name stands here
    assert unseen(cells, _conversations(store), done.noticed) == ["message_types.type_id", "messages.lion_class"]
    assert store.conversations.sessions.get("sessions.id").ended_at_is_approximate is True
    assert store.conversations.messages.get("messages.id").lion_class == "message_types.lion_class"
