"""What can be pruned in part: the beginnings of inboxes and of feeds."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.maintenance.prune.sweeps.conversations import CHANGES_SWEEP, EXCHANGE
from lastlight_state.maintenance.prune.sweeps.sweep import Sweep

SWEEPS: Mapping[str, Sweep] = {sweep.name: sweep for sweep in (EXCHANGE, CHANGES_SWEEP)}
