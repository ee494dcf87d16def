"""The table of the states domain."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped

from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.schema.declarations import (
    KIB,
    MIB,
    bytes_column,
    describe_table,
    json_column,
    person_column,
    text_column,
)
from lastlight_state.db.schema.indexes import where
from lastlight_state.db.schema.sealing import Binding

#: The columns that a sealed value is bound to. Not the row's id, which is unknown when a value is replaced.
_PLACE = ("scope", "key")


class StateModel(Base):
    """A value, JSON or bytes, by a key within a scope. An expired value counts as missing."""

    __tablename__ = "states"
    __table_args__ = (
        UniqueConstraint("scope", "key"),
        describe_table(
            "values by scope and key, JSON or bytes",
            pruned_as=("states",),
            erased="removed",
            newest=("created_at", "updated_at"),
        ),
    )

    id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    scope: Mapped[str] = text_column(KIB, server_default=text("''"), personal=False)
    key: Mapped[str] = text_column(512, personal=False)
    version: Mapped[str] = text_column(None, personal=False)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    user: Mapped[str | None] = person_column(256)
    #: Large columns come last, so that SQLite can read the other columns without them. NULL if the value is bytes.
    value: Mapped[Any] = json_column(8 * MIB, personal=True, sealed=Binding("states.value", _PLACE), nullable=True)
    body: Mapped[bytes | None] = bytes_column(most=64 * MIB, personal=True, sealed=Binding("states.body", _PLACE))


STATES = table_of(StateModel)

#: For prunes of expired states.
Index("ix_states_expiry", STATES.c.expires_at, **where("expires_at IS NOT NULL"))
