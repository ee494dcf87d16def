"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from support.rivals import Look, check, parameters
from support.workflows.looks import LOOKS

from lastlight_state.testing import Database


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """workflows W-10, W-14: the lock of the look lasts to the commit."""
    check(database, look)
