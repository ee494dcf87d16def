"""``store.messaging`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.lazy import Part
from lastlight_state.messaging import Messaging
from lastlight_state.messaging.messages import Messages
from lastlight_state.messaging.sessions import Sessions


class AsyncSessions(Face[Sessions]):
    """``store.messaging.sessions``"""

    resume = writing(Sessions.resume)
    create = writing(Sessions.create)
    get = reading(Sessions.get)
    find = reading(Sessions.find)
    find_active = reading(Sessions.find_active)
    find_by_agent_session = reading(Sessions.find_by_agent_session)
    list = reading(Sessions.list)
    touch = writing(Sessions.touch)
    ensure_agent_session = writing(Sessions.ensure_agent_session)
    update = writing(Sessions.update)
    close = writing(Sessions.close)
    close_idle = writing(Sessions.close_idle)


class AsyncMessages(Face[Messages]):
    """``store.messaging.messages``"""

    append = writing(Messages.append)
    append_many = writing(Messages.append_many)
    try_append_to_thread = writing(Messages.try_append_to_thread)
    history = reading(Messages.history)
    since = reading(Messages.since)
    list = reading(Messages.list)
    get = reading(Messages.get)
    find_by_platform_id = reading(Messages.find_by_platform_id)


class AsyncMessaging(Face[Messaging]):
    """``store.messaging``"""

    #: Stretches of conversation, at most one active per user and place.
    sessions: Part[AsyncSessions] = Part("lastlight_state.aio.messaging.AsyncSessions")
    #: Messages of sessions, in the order in which they were stored.
    messages: Part[AsyncMessages] = Part("lastlight_state.aio.messaging.AsyncMessages")
