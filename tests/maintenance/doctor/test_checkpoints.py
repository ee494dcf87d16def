"""What an examination finds in threads of checkpoints."""

from __future__ import annotations

import pytest
from support.checkpoints.steps import step

from lastlight_state.testing import Database


@pytest.mark.parametrize(
    ("gone", "message", "named"),
    [
        ("3", "a value is a change since one that is not there", "4"),
        ("1", "a value is a change since one that is not there", "2"),
        ("5", "a value is the same as one that is not there", "6"),
    ],
)
def test_a_value_whose_base_is_gone_is_named(database: Database, gone: str, message: str, named: str) -> None:
    """checkpoints CK-33, maintenance OP-45: and what was stored as it should be is not."""
    store, data = database.open(), "x" * 2_000
    for number in range(1, 5):
        store.checkpoints.put("t", step(number, {"a": f"{number}{data}"}))
    for number in (5, 6):
        store.checkpoints.put("t", step(number, {"b": "same"}))
    assert store.maintenance.doctor.examine(only=["DOC-12"]).findings == ()
    database.raw().execute(f"DELETE FROM checkpoint_values WHERE version = '{gone}'")
    findings = {one.message: one.samples for one in store.maintenance.doctor.examine(only=["DOC-12"]).findings}
    assert next(sample.split()[-1] for sample in findings.pop(message)) == named
    assert not findings
