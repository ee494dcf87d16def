"""Sources that are moved, copied, restored, begun anew and copied over, imported again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.maintenance.changing_sources import ChangingSources
from support.maintenance.named_sources import SOURCES

from lastlight_state.testing import Database

_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 64))]


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", SOURCES)
def test_whatever_happens_to_sources_their_items_are_here_once_and_come_to_rest(
    database: Database, tmp_path: Path, kind: str, seed: int
) -> None:
    """maintenance OP-36, M-120, M-121."""
    sources = ChangingSources(database, tmp_path, kind, seed)
    for _ in range(10):
        sources.change()
    sources.come_to_rest()
