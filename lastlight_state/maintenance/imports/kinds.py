"""All kinds of sources, in the order in which a source is compared with them."""

from __future__ import annotations

from lastlight_state.maintenance.imports import (
    agent_histories,
    log_trees,
    mailbox_pieces,
    node_databases,
    run_folders,
    session_databases,
    teams,
    workflow_databases,
)

_ALL = (
    run_folders.KIND,
    session_databases.KIND,
    node_databases.KIND,
    workflow_databases.KIND,
    teams.KIND,
    log_trees.HOME_KIND,
    log_trees.KIND,
    mailbox_pieces.KIND,
    agent_histories.KIND,
)
#: The kinds by their names.
KINDS = {kind.name: kind for kind in _ALL}
