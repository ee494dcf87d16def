"""The async form of ``store.states``."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.states import States


class AsyncStates(Face[States]):
    """The async form of ``store.states``."""

    put = writing(States.put)
    merge = writing(States.merge)
    get = reading(States.get)
    find = reading(States.find)
    find_many = reading(States.find_many)
    list = reading(States.list)
    items = reading(States.items)
    scopes = reading(States.scopes)
    expire = writing(States.expire)
    remove = writing(States.remove)
    clear = writing(States.clear)
    state_of = reading(States.state_of)
