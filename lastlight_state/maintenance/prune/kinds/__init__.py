"""What can be pruned: each kind of record with its age, what goes with it, and what protects it."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.maintenance.prune.kinds import chats, crons, runs, sessions
from lastlight_state.maintenance.prune.kinds.kind import Kind

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (sessions.SESSIONS_KIND, runs.RUNS_KIND, runs.EXECUTIONS_KIND, chats.CHATS, crons.FIRES_KIND)
}
