"""Every public method of a mailbox, on both sides, called with what nobody would expect."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.hostile import calls, mailbox_methods
from support.hostile_rows import KNOWN

from lastlight_state.files.mailbox import Mailboxes


def attack(root: Path, share: float, seed: int) -> tuple[int, list[object]]:
    """How many calls were made, and those that ended with another error than ours."""
    boxes = Mailboxes(root)
    sides = SimpleNamespace(host=boxes.create("g", "s"), agent=boxes.agent("g", "s"))
    known = KNOWN | {"group": "g", "session": "s", "timeout": timedelta(0), "sessions": [("g", "s")]}
    wrong: list[object] = []
    made = 0
    for call in calls(mailbox_methods(boxes, "g", "s"), known, share=share, seed=seed):
        made += 1
        boxes.ensure("g", "s")  # a call may have removed it
        outcome = call.on(sides if "." in call.path else boxes)
        if outcome[0].startswith("!"):
            wrong.append((call.path, call.attacked, repr(type(call.arguments.get(call.attacked))), outcome))
    return made, wrong


@pytest.mark.slow
def test_a_hostile_argument_of_a_mailbox_is_the_librarys_own_error(tmp_path: Path) -> None:
    """mailbox MB-105: on both sides, also within argument groups."""
    made, wrong = attack(tmp_path, share=0.02, seed=11)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 150


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_hostile_arguments_of_a_mailbox(tmp_path: Path, seed: int) -> None:
    """mailbox MB-105."""
    made, wrong = attack(tmp_path, share=0.5, seed=seed)
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert made > 2_000
