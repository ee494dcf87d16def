"""The vocabularies of the journal, and its bounds that are no column's."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db.valid import words

Order = Literal["oldest_first", "newest_first"]
ToolStatus = Literal["succeeded", "failed", "cancelled", "timed_out"]
SandboxStatus = Literal["pending", "running", "shipped", "completed", "failed", "cancelled"]
ScoreSource = Literal["live", "batch"]
ScoreHistory = Literal["current", "all"]
ScoreGroups = Literal["scorer", "scorer_and_run"]
WhenFull = Literal["wait", "refuse"]

ORDERS = words(Order)
TOOL_STATUSES = words(ToolStatus)
SANDBOX_STATUSES = words(SandboxStatus)
SCORE_SOURCES = words(ScoreSource)
SCORE_HISTORIES = words(ScoreHistory)
SCORE_GROUPS = words(ScoreGroups)
WHEN_FULL = words(WhenFull)

#: The status of a tool call that has not finished.
RUNNING = "running"
#: The statuses in which a sandbox stays.
SANDBOX_ENDS = ("completed", "failed", "cancelled")


#: Levels of a frame's tree. Each is two levels of JSON, of which the library underneath writes 254 at most.
FRAME_DEPTH = 120
#: The most events that one call appends.
BATCH = 1000
#: The most types that one filter names.
TYPES = 100
#: The most runs that one filter of scores names.
SCORED_RUNS = 100
#: The most groups of one aggregate.
GROUPS = 500
#: How many events or signals a page holds unless asked for fewer or more.
PAGE = 200

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
EVENT = "run_event"
SIGNAL = "run_signal"
FRAME_KIND = "run_frame"
TOOL_CALL = "tool_call"
SANDBOX = "sandbox"
SCORE = "score"
