"""Reactions: triggers that change other rows after a row was written, whoever writes it. Declared beside the models.

Revisions spell the triggers out in SQL for each product. Tests render the declared reactions and compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import MetaData

from lastlight_state.db.base import Base

_KEY = "reactions"

#: After which statements a reaction runs, and by which names it finds the rows to change.
EVENTS = {"insert": "NEW.{key}", "update": "OLD.{key}, NEW.{key}", "delete": "OLD.{key}"}


@dataclass(frozen=True)
class Reaction:
    """A change of the rows of ``target`` that have the ``key`` of a row of ``table`` which was written or deleted.

    ``says``: what it does, for the schema's page. ``sets`` and ``when`` are SQL for both products. ``function`` is the
    name of the function that Postgres needs.
    """

    name: str
    table: str
    target: str
    key: str
    sets: str
    when: str
    says: str
    function: str

    def statement(self, keys: str) -> str:
        """The change of the rows with these keys, ``OLD.name`` for example."""
        return f"UPDATE {self.target} SET {self.sets} WHERE {self.key} IN ({keys}) AND {self.when}"


def declare(reaction: Reaction) -> Reaction:
    """Add a reaction to the central schema."""
    Base.metadata.info.setdefault(_KEY, {})[reaction.name] = reaction
    return reaction


def declared_reactions(metadata: MetaData = Base.metadata) -> tuple[Reaction, ...]:
    """All reactions of the schema."""
    return tuple(metadata.info.get(_KEY, {}).values())
