"""The agent's event logs: an append-only line file for each agent session, separate from the database.

The database stores what runs and what comes next; a log stores every event that the agent emitted, in order. Database
and log share only a ``session_id``. Logs are files, so they take no part in transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.files.agent_log.arguments import (
        CommandRecord as CommandRecord,
        Outcome as Outcome,
        Tokens as Tokens,
        TranslationOptions as TranslationOptions,
    )
    from lastlight_state.files.agent_log.face import AgentLog as AgentLog
    from lastlight_state.files.agent_log.messages import messages_of as messages_of
    from lastlight_state.files.agent_log.paths import (
        Cwd as Cwd,
        Place as Place,
        Slug as Slug,
        slug_for_cwd as slug_for_cwd,
    )
    from lastlight_state.files.agent_log.raw import Raw as Raw
    from lastlight_state.files.agent_log.reader import Reader as Reader
    from lastlight_state.files.agent_log.records import (
        AgentSessionSummary as AgentSessionSummary,
        Hit as Hit,
        LogCheck as LogCheck,
        LogIssue as LogIssue,
        LogLine as LogLine,
        LogMessage as LogMessage,
        LogPage as LogPage,
        LogUsage as LogUsage,
        MessagePage as MessagePage,
        RawCheck as RawCheck,
        RawFile as RawFile,
        RunResult as RunResult,
        SessionFile as SessionFile,
        SessionPage as SessionPage,
    )
    from lastlight_state.files.agent_log.repair import LogRepair as LogRepair
    from lastlight_state.files.agent_log.summaries import Sessions as Sessions
    from lastlight_state.files.agent_log.writer import Writer as Writer
    from lastlight_state.files.agent_log.writer.session import SessionWriter as SessionWriter
    from lastlight_state.files.jsonl.follow import Reset as Reset

public(
    globals(),
    {
        "arguments": "CommandRecord Outcome Tokens TranslationOptions",
        "face": "AgentLog",
        "messages": "messages_of",
        "paths": "Cwd Place Slug slug_for_cwd",
        "raw": "Raw",
        "reader": "Reader Reset",
        "records": "AgentSessionSummary Hit LogCheck LogIssue LogLine LogMessage LogPage LogUsage MessagePage "
        "RawCheck RawFile RunResult SessionFile SessionPage",
        "repair": "LogRepair",
        "summaries": "Sessions",
        "writer": "Writer",
        "writer.session": "SessionWriter",
    },
)
