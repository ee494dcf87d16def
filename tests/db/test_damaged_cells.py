"""Every column of every table damaged by plain SQL: rows beside the damaged one are shown, taken and swept."""

from __future__ import annotations

import random

import pytest
from support.damaged_cells import UNREAD, Attack, Damage, damages

from lastlight_state.testing import Database

#: Chooses the tables that every run of the suite damages, and a column of each; `make soak` damages all of all.
SEED, TABLES = 3, 8


def some(every: list[Damage]) -> list[Damage]:
    """One of the damages of some tables."""
    by_table: dict[str, list[Damage]] = {}
    for damage in every:
        by_table.setdefault(damage.table.name, []).append(damage)
    chance = random.Random(SEED)
    return [chance.choice(found) for found in chance.sample([*by_table.values()], TABLES)]


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_damaged_cell_harms_its_row_alone(database: Database, whole: bool) -> None:
    """house H-52: every list, look-up and sweep serves all other rows; reading the row itself is `CorruptData`."""
    attack = Attack(database)
    every = [damage for damage in damages(attack.store, attack.tables) if damage.table.name not in UNREAD]
    found = {str(damage): attack.problems(damage) for damage in (every if whole else some(every))}
    wrong = [f"{damage}: {problem}" for damage, problems in found.items() for problem in problems]
    assert not wrong, "\n".join(wrong)
    assert attack.named > len(found) / 4
    assert attack.refused < len(found) / 4
