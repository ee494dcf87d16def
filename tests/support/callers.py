"""What a caller brings to ``transaction(connection=…)``."""

from typing import Any

import sqlalchemy as sa

from lastlight_state.testing import Database


def engine_on(database: Database, **options: Any) -> sa.Engine:
    """An engine of the caller's, which sets the two pragmas that a transaction cannot."""
    if database.name == "postgresql":
        return sa.create_engine(database.url, **options)
    engine = sa.create_engine(f"sqlite:///{database.url}", **options)

    def connected(driver: Any, record: Any) -> None:
        driver.execute("PRAGMA foreign_keys = ON")
        driver.execute("PRAGMA recursive_triggers = ON")

    sa.event.listen(engine, "connect", connected)
    return engine
