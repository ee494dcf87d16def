"""Values that an agent keeps over restarts, such as the conversation that it continues."""

from __future__ import annotations

from collections.abc import Sequence

from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.unit import Unit
from lastlight_state.errors import NotFound
from lastlight_state.mailbox import words
from lastlight_state.mailbox.agent import statements as sql
from lastlight_state.mailbox.kernel.pair import Room
from lastlight_state.mailbox.records import StateEntry
from lastlight_state.mailbox.rows import SessionStateRow
from lastlight_state.mailbox.words import STATE

#: Where the original kept the one conversation that it knew.
_LEGACY = "sdk_session_id"


class AgentState(Room):
    """``agent.state``"""

    def get(self, key: str) -> str:
        """The value. Raises `NotFound`."""
        found = self.find(key)
        if found is None:
            raise NotFound(STATE, key)
        return found

    def find(self, key: str) -> str | None:
        """The value, or None."""
        found = self._find(StateEntry.of, sql.GET_STATE, {"key": valid.sought("key", key)})
        return None if found is None else found.value

    def put(self, key: str, value: str) -> None:
        """Store the value, at most 256 KiB."""
        row = self._row(valid.identifier("key", key, words.STATE_KEY_BYTES), value)
        self._writing(lambda unit: unit.change(sql.PUT_STATE, row), repeatable=True)

    def clear(self, key: str) -> bool:
        """Remove the value; whether there was one."""
        asked = {"key": valid.sought("key", key)}
        return self._writing(lambda unit: unit.change(sql.DELETE_STATE, asked)) > 0

    def list(self) -> Sequence[StateEntry]:
        """All values, by key."""
        return self._all(StateEntry.of, sql.LIST_STATE)

    def continuation(self, provider: str) -> str | None:
        """The conversation with this provider that is to be continued, or None.

        A conversation that the original noted is taken over by the first provider that has none; otherwise forgotten.
        """
        slot = _slot(provider)
        if self.find(_LEGACY) is not None:
            now = iso_text(self._now())
            self._writing(lambda unit: _adopt(unit, slot, now))
        return self.find(slot)

    def put_continuation(self, provider: str, value: str) -> None:
        """Store the conversation with this provider."""
        self.put(_slot(provider), value)

    def clear_continuation(self, provider: str) -> bool:
        """Forget the conversation with this provider; whether there was one."""
        return self.clear(_slot(provider))

    def _row(self, key: str, value: str) -> SessionStateRow:
        text = valid.content("value", value, self._settings.limits.agent_state)
        return {"key": key, "value": text, "updated_at": iso_text(self._now())}


def _slot(provider: str) -> str:
    return f"continuation:{valid.identifier('provider', provider, words.STATE_KEY_BYTES - 13).lower()}"


def _adopt(unit: Unit, slot: str, now: str) -> None:
    legacy = unit.find(StateEntry.of, sql.GET_STATE, {"key": _LEGACY})
    if legacy is None:
        return
    if unit.row(sql.GET_STATE, {"key": slot}) is None:
        unit.change(sql.PUT_STATE, {"key": slot, "value": legacy.value, "updated_at": now})
    unit.change(sql.DELETE_STATE, {"key": _LEGACY})
