"""Somebody writes while what is stored is sealed."""

from __future__ import annotations

from support.sealing import Xor, filled

from lastlight_state.testing import Database, racing


def test_what_is_written_meanwhile_is_not_lost(database: Database) -> None:
    """codec CO-10: `Reencrypt._changed_rows` seals a row under its lock."""
    filled(database.open())
    store, rival = database.open(codec=Xor(7)), database.open(codec=Xor(7))
    with racing(store) as race:
        race.before_unit(3, lambda: rival.states.put("json", "newer"))
        store.maintenance.reencrypt.run(batch_rows=1)
    assert (race.left, store.states.get("json").value) == (0, "newer")
