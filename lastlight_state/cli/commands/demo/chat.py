"""The conversation beside the run: a user asks, the agent answers, and all of it is stored."""

from __future__ import annotations

from lastlight_state.cli.commands.demo.agent import replay
from lastlight_state.cli.commands.demo.recording import segments
from lastlight_state.cli.commands.demo.story import CHAT
from lastlight_state.store import StateStore
from lastlight_state.workflows import Trigger

SKILL = "chat"


def turn(store: StateStore, number: int) -> str:
    """One question and its answer, the recorded ones of that number; the id of the messaging session."""
    segment = segments(SKILL)[number]
    session = store.messaging.sessions.resume(CHAT).session
    agent_session = store.messaging.sessions.ensure_agent_session(session.id, f"chat-{session.id[-12:]}")
    store.messaging.messages.append(session.id, role="user", content=segment.prompt)
    trigger = Trigger(session.id, type="chat", actor=CHAT.user_id, actor_type="slack")
    execution = store.workflows.executions.start(SKILL, trigger=trigger, session_id=agent_session)
    replayed = replay(store, segment, session_id=agent_session, prompt=segment.prompt, execution_id=execution.id)
    store.messaging.messages.append(session.id, role="assistant", content=segment.last_text)
    store.workflows.executions.finish(execution.id, "succeeded", usage=replayed.usage)
    return session.id
