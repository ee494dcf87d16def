"""``store.conversations`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.conversations import Conversations
from lastlight_state.conversations.branches import Branches
from lastlight_state.conversations.lineage import Lineage
from lastlight_state.conversations.message_types import MessageTypes
from lastlight_state.conversations.messages import Messages
from lastlight_state.conversations.progressions import Progressions
from lastlight_state.conversations.sessions import Sessions
from lastlight_state.conversations.trees import Trees
from lastlight_state.conversations.vectors import Vectors
from lastlight_state.lazy import Part


class AsyncMessages(Face[Messages]):
    """``store.conversations.messages``"""

    create = writing(Messages.create)
    ensure = writing(Messages.ensure)
    put = writing(Messages.put)
    get = reading(Messages.get)
    find = reading(Messages.find)
    get_many = reading(Messages.get_many)
    list = reading(Messages.list)
    count = reading(Messages.count)
    uses = reading(Messages.uses)
    set_embedding = writing(Messages.set_embedding)
    similar = reading(Messages.similar)


class AsyncMessageTypes(Face[MessageTypes]):
    """``store.conversations.message_types``"""

    resolve = writing(MessageTypes.resolve)
    name = reading(MessageTypes.name)
    find = reading(MessageTypes.find)
    list = reading(MessageTypes.list)


class AsyncProgressions(Face[Progressions]):
    """``store.conversations.progressions``"""

    create = writing(Progressions.create)
    ensure = writing(Progressions.ensure)
    get = reading(Progressions.get)
    find = reading(Progressions.find)
    ids = reading(Progressions.ids)
    collection = reading(Progressions.collection)
    append = writing(Progressions.append)
    replace = writing(Progressions.replace)
    containing = reading(Progressions.containing)


class AsyncSessions(Face[Sessions]):
    """``store.conversations.sessions``"""

    create = writing(Sessions.create)
    ensure = writing(Sessions.ensure)
    get = reading(Sessions.get)
    find = reading(Sessions.find)
    list = reading(Sessions.list)
    count = reading(Sessions.count)
    update = writing(Sessions.update)
    merge_metadata = writing(Sessions.merge_metadata)
    touch = writing(Sessions.touch)


class AsyncBranches(Face[Branches]):
    """``store.conversations.branches``"""

    create = writing(Branches.create)
    ensure = writing(Branches.ensure)
    get = reading(Branches.get)
    find = reading(Branches.find)
    list = reading(Branches.list)
    update = writing(Branches.update)
    merge_metadata = writing(Branches.merge_metadata)
    append = writing(Branches.append)
    replace_system = writing(Branches.replace_system)
    history = reading(Branches.history)
    order = reading(Branches.order)
    tail = reading(Branches.tail)


class AsyncLineage(Face[Lineage]):
    """``store.conversations.lineage``"""

    fork = writing(Lineage.fork)
    ancestors = reading(Lineage.ancestors)
    forks = reading(Lineage.forks)
    common_point = reading(Lineage.common_point)


class AsyncTrees(Face[Trees]):
    """``store.conversations.trees``"""

    save = writing(Trees.save)
    load = reading(Trees.load)


class AsyncVectors(Face[Vectors]):
    """``store.conversations.vectors``"""

    put = writing(Vectors.put)
    get = reading(Vectors.get)
    find = reading(Vectors.find)
    list = reading(Vectors.list)
    search = reading(Vectors.search)
    count = reading(Vectors.count)
    clear = writing(Vectors.clear)
    namespaces = reading(Vectors.namespaces)


class AsyncConversations(Face[Conversations]):
    """``store.conversations``"""

    #: Messages, each stored once and referred to.
    messages: Part[AsyncMessages] = Part("lastlight_state.aio.conversations.AsyncMessages")
    #: Classes of messages in the runtimes that made them.
    message_types: Part[AsyncMessageTypes] = Part("lastlight_state.aio.conversations.AsyncMessageTypes")
    #: Orders of messages.
    progressions: Part[AsyncProgressions] = Part("lastlight_state.aio.conversations.AsyncProgressions")
    #: Sessions, each with the pool of its messages.
    sessions: Part[AsyncSessions] = Part("lastlight_state.aio.conversations.AsyncSessions")
    #: Branches of sessions: appends and histories.
    branches: Part[AsyncBranches] = Part("lastlight_state.aio.conversations.AsyncBranches")
    #: Forks and ancestors of branches.
    lineage: Part[AsyncLineage] = Part("lastlight_state.aio.conversations.AsyncLineage")
    #: Whole sessions, saved and loaded at once.
    trees: Part[AsyncTrees] = Part("lastlight_state.aio.conversations.AsyncTrees")
    #: Chunks of text with their embeddings.
    vectors: Part[AsyncVectors] = Part("lastlight_state.aio.conversations.AsyncVectors")
