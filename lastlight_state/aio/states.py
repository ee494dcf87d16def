"""The async form of ``store.states``."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, forward_read, forward_write
from lastlight_state.states import States


class AsyncStates(Face[States]):
    """The async form of ``store.states``."""

    put = forward_write(States.put)
    merge = forward_write(States.merge)
    get = forward_read(States.get)
    find = forward_read(States.find)
    find_many = forward_read(States.find_many)
    list = forward_read(States.list)
    items = forward_read(States.items)
    scopes = forward_read(States.scopes)
    expire = forward_write(States.expire)
    remove = forward_write(States.remove)
    clear = forward_write(States.clear)
    state_of = forward_read(States.state_of)
