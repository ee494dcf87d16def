"""What tests of the joins between files and database share: turns of chats, and log files."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from support.workflows.plans import Plan

from lastlight_state.files.agent_log import AgentLog, Cwd, Outcome
from lastlight_state.messaging import ConversationKey, MessagingSession
from lastlight_state.workflows import Trigger, Usage

KEY = ConversationKey("slack", "C1", "U1")


def reads_the_table(plan: Plan) -> bool:
    """Whether executions are read in no order. What the statement itself made up may be."""
    if "->" in plan.text:
        return plan.scans_the_table
    return re.search(r"^SCAN (executions|turn|newest)(?!.* INDEX)", plan.text, re.MULTILINE) is not None


def turn(
    store: Any, trigger_id: str, session_id: str | None = None, *, usage: Usage | None = None, **where: Any
) -> str:
    """A finished chat turn; its id."""
    started = store.workflows.executions.start("chat", trigger=Trigger(trigger_id, **where), session_id=session_id)
    store.workflows.executions.finish(started.id, "succeeded", usage=usage)
    return str(started.id)


def conversation(store: Any, *said: tuple[str, str], log: str | None = None) -> MessagingSession:
    """A messaging session in which this was said, with this agent session."""
    session: MessagingSession = store.messaging.sessions.resume(KEY).session
    for role, content in said:
        store.messaging.messages.append(session.id, role=role, content=content)
    if log is not None:
        store.messaging.sessions.ensure_agent_session(session.id, log)
    return session


def logged(state_dir: Path, session_id: str, prompt: str, *, cwd: str = "/app", at: datetime | None = None) -> Path:
    """A log of a prompt and a result, last changed at that time."""
    with AgentLog(state_dir / "agent-sessions").writer.open(
        place=Cwd(cwd), session_id=session_id, prompt=prompt, sync="os"
    ) as writer:
        writer.finish(Outcome(result="done"))
        path = writer.path
    assert path is not None
    if at is not None:
        os.utime(path, (at.timestamp(), at.timestamp()))
    return path
