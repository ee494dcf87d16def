"""Every kind of source, in the order in which they are looked for."""

from __future__ import annotations

from lastlight_state.maintenance.imports import run_folders, session_databases, teams, workflow_databases

#: The kinds by their names.
KINDS = {kind.name: kind for kind in (run_folders.KIND, session_databases.KIND, workflow_databases.KIND, teams.KIND)}
