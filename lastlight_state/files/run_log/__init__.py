"""The run log: an append-only line file for each run, and a snapshot for each session that may resume.

The log is for inspection, audit and replay, and is never rewritten. The snapshot is always replaced as a whole, and a
session resumes from it. Log and snapshot share a ``session_id``, and neither is derived from the other. Both are files,
so they take no part in transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.files.run_log.checks import Checks as Checks
    from lastlight_state.files.run_log.checks.findings import Finding as Finding, Report as Report, Salvaged as Salvaged
    from lastlight_state.files.run_log.face import (
        EnvironmentChange as EnvironmentChange,
        ResumePlan as ResumePlan,
        RunLog as RunLog,
        default_notice as default_notice,
        prepare_resume as prepare_resume,
    )
    from lastlight_state.files.run_log.fields import (
        LlmInput as LlmInput,
        LlmOutput as LlmOutput,
        LlmUsage as LlmUsage,
        Model as Model,
        OutputRef as OutputRef,
        Program as Program,
        Prompts as Prompts,
        RunErrorInfo as RunErrorInfo,
        RunInput as RunInput,
        Runtime as Runtime,
        Tools as Tools,
    )
    from lastlight_state.files.run_log.messages import (
        Dropped as Dropped,
        Normalised as Normalised,
        normalise as normalise,
        without_marks as without_marks,
    )
    from lastlight_state.files.run_log.paths import new_run_id as new_run_id
    from lastlight_state.files.run_log.reading import Damage as Damage, RunReading as RunReading
    from lastlight_state.files.run_log.records import (
        AgentEvent as AgentEvent,
        CustomRecord as CustomRecord,
        LlmRequest as LlmRequest,
        LlmResponse as LlmResponse,
        RunContext as RunContext,
        RunEnd as RunEnd,
        RunError as RunError,
        RunHeader as RunHeader,
        RunRecord as RunRecord,
        RunStart as RunStart,
        RunStatus as RunStatus,
        ToolOutput as ToolOutput,
        UnknownRecord as UnknownRecord,
        record_of as record_of,
    )
    from lastlight_state.files.run_log.replay import (
        HistoryEvent as HistoryEvent,
        PromptTurn as PromptTurn,
        Replay as Replay,
        RunDigest as RunDigest,
        SessionHistory as SessionHistory,
        TokenTotals as TokenTotals,
    )
    from lastlight_state.files.run_log.runs import Runs as Runs
    from lastlight_state.files.run_log.runs.heads import (
        PruneReport as PruneReport,
        RunEntry as RunEntry,
        RunPage as RunPage,
        TailChunk as TailChunk,
    )
    from lastlight_state.files.run_log.states import States as States
    from lastlight_state.files.run_log.states.files import (
        SessionEntry as SessionEntry,
        SessionPage as SessionPage,
        SessionState as SessionState,
    )
    from lastlight_state.files.run_log.writer import RunWriter as RunWriter

public(
    globals(),
    {
        "checks": "Checks",
        "checks.findings": "Finding Report Salvaged",
        "face": "RunLog EnvironmentChange ResumePlan default_notice prepare_resume",
        "records": "record_of AgentEvent CustomRecord LlmRequest LlmResponse RunContext RunEnd RunError "
        "RunHeader RunRecord RunStart RunStatus ToolOutput UnknownRecord",
        "messages": "Dropped Normalised normalise without_marks",
        "paths": "new_run_id",
        "reading": "Damage RunReading",
        "fields": "LlmInput LlmOutput LlmUsage Model OutputRef Program Prompts RunErrorInfo RunInput Runtime Tools",
        "replay": "Replay HistoryEvent PromptTurn RunDigest SessionHistory TokenTotals",
        "runs": "Runs",
        "runs.heads": "PruneReport RunEntry RunPage TailChunk",
        "states": "States",
        "states.files": "SessionEntry SessionPage SessionState",
        "writer": "RunWriter",
    },
)
