"""A database that another connection keeps busy, until the retry has slept so many times."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lastlight_state import Settings, StateStore
from lastlight_state.backends.waiting import Retry
from lastlight_state.testing import Database


class Naps(list[float]):
    """The pauses that a store's retry asked for, none of them slept. ``after`` says what happens in them."""

    def __init__(self, store: StateStore) -> None:
        super().__init__()
        self.after: dict[int, Any] = {}
        scope: Any = store._scope
        scope.retry = Retry(store.metrics, sleep=self._nap)

    def _nap(self, seconds: float) -> None:
        self.append(seconds)
        then = self.after.get(len(self))
        if then is not None:
            then()


def impatient(database: Database, **settings: Any) -> StateStore:
    """A store that hardly waits for locks inside the database, so that its retry has to."""
    return database.open(settings=Settings(lock_timeout=0.02, busy_timeout=0.001, **settings))


@contextmanager
def busy(database: Database) -> Iterator[Any]:
    """Keep every writer of runs waiting; the connection yielded ends it by ``ROLLBACK``."""
    holder = database.raw()
    if database.name == "postgresql":
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE workflow_runs IN ACCESS EXCLUSIVE MODE")
    else:
        holder.execute("BEGIN IMMEDIATE")
    yield holder
    holder.close()
