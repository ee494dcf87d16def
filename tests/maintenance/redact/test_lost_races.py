"""Somebody comes in between the statements of `Redact.run`, which looks again under its locks in each batch."""

from __future__ import annotations

from support.conversations.talk import said
from support.maintenance.people import emptied

from lastlight_state.conversations import NewMessage
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database, racing


def test_a_message_that_gets_another_role_meanwhile_stays(database: Database) -> None:
    """maintenance OP-32."""
    store, other = database.open(), database.open()
    for one in said("a", "b"):
        store.conversations.messages.put(one)
    with racing(store) as race:
        race.before_unit(3, lambda: other.conversations.messages.put(NewMessage("tool", "x", id="a")))
        receipt = store.maintenance.redact.run(RedactPolicy(message_ids=["a", "b"], roles=["user"]))
    assert (race.left, receipt.counts, emptied(store, "a", "b")) == (0, {"messages": 1}, [False, True])
