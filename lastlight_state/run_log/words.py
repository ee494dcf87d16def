"""The vocabularies of run logs, and the keys that this library adds to ``meta``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from lastlight_state.db.valid import words

RunStatusWord: TypeAlias = Literal["running", "awaiting_ui", "completed", "error", "cancelled"]
RunOutcome: TypeAlias = Literal["completed", "cancelled", "error"]
#: ``running`` and ``crashed`` runs have no ``run.end``; where there are no locks to tell them apart it is ``unknown``.
RunState: TypeAlias = Literal["running", "crashed", "unknown", "ended"]
OnError: TypeAlias = Literal["raise", "report"]

STATUSES = words(RunStatusWord)
OUTCOMES = words(RunOutcome)
INPUTS = frozenset({"text", "parts"})
#: The statuses that end a run.
TERMINAL = OUTCOMES

#: The version of files and snapshots that is written, and the only one that is supported.
VERSION = 1

MARK = "x.lastlight."
LATE = MARK + "late"
ENVIRONMENT = MARK + "environment"
WORKSPACE = MARK + "workspace_root"
#: The same in snapshots of the original program.
FOREIGN_WORKSPACE = "codelia_workspace_root"
NOTICE = MARK + "resume_notice"
RECONSTRUCTED = MARK + "reconstructed"

RUN = "run"
STATE = "session_state"
