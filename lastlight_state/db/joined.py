"""After-commit hooks on a transaction that is the caller's own."""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.engine import Connection

from lastlight_state.db.scope import run_hooks
from lastlight_state.db.unit import Unit
from lastlight_state.metrics import Metrics


def hooks_follow(connection: Connection, unit: Unit, metrics: Metrics) -> None:
    """Run the unit's hooks when the caller's transaction is committed, drop them when it is rolled back.

    SQLAlchemy tells of a commit before it happens, so the driver's commit is made here; the one that follows finds
    nothing left to do.
    """
    if not unit.hooks:
        return

    def committed(of: Connection) -> None:
        stop()
        of.connection.commit()
        run_hooks(unit, metrics)

    def rolled_back(_: Connection) -> None:
        stop()

    def stop() -> None:
        event.remove(connection, "commit", committed)
        event.remove(connection, "rollback", rolled_back)

    event.listen(connection, "commit", committed)
    event.listen(connection, "rollback", rolled_back)
