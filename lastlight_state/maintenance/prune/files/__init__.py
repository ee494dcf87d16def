"""What can be pruned beside the database: log files of agents, and of runs."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.maintenance.prune.files.agents import AgentLogs
from lastlight_state.maintenance.prune.files.runs import RunLogs
from lastlight_state.maintenance.prune.files.tree import Tree

FILES: Mapping[str, type[Tree]] = {tree.name: tree for tree in (AgentLogs, RunLogs)}
