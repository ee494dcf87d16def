"""``store.checkpoints`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.checkpoints import Checkpoints


class AsyncCheckpoints(Face[Checkpoints]):
    """``store.checkpoints``"""

    put = writing(Checkpoints.put)
    put_writes = writing(Checkpoints.put_writes)
    get = reading(Checkpoints.get)
    find = reading(Checkpoints.find)
    list = reading(Checkpoints.list)
    history = reading(Checkpoints.history)
    copy = writing(Checkpoints.copy)
    delete = writing(Checkpoints.delete)
    delete_runs = writing(Checkpoints.delete_runs)
    keep_latest = writing(Checkpoints.keep_latest)
    expire = writing(Checkpoints.expire)
    thread = reading(Checkpoints.thread)
    thread_of = reading(Checkpoints.thread_of)
    threads = reading(Checkpoints.threads)
