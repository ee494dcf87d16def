"""Kinds that are pruned by sweeps: the oldest rows of inboxes, feeds and journals, expired records, orphans."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.maintenance.prune.sweeps.expiry import (
    CACHE_SWEEP,
    CHECKPOINTS_SWEEP,
    STATES_SWEEP,
    WORKERS_SWEEP,
)
from lastlight_state.maintenance.prune.sweeps.journal import JOURNAL
from lastlight_state.maintenance.prune.sweeps.orphans import ORPHANS
from lastlight_state.maintenance.prune.sweeps.prefixes import CHANGES_SWEEP, EXCHANGE
from lastlight_state.maintenance.prune.sweeps.sweep import Sweep

_ALL = (EXCHANGE, CHANGES_SWEEP, JOURNAL, CACHE_SWEEP, CHECKPOINTS_SWEEP, STATES_SWEEP, WORKERS_SWEEP, ORPHANS)
SWEEPS: Mapping[str, Sweep] = {sweep.name: sweep for sweep in _ALL}
