"""Chunks of messages, branches and sessions, which repeat their texts: removed when the texts are emptied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypedDict

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, NAMESPACES, VECTORS
from lastlight_state.db.keyed import IdRow, chunks as some, family, rows
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit


class Space(TypedDict):
    """A namespace of chunks."""

    namespace: str


class ChunkOf(IdRow):
    """A chunk, and what it is of."""

    of: str


_b, _n, _v = BRANCHES.c, NAMESPACES.c, VECTORS.c

_within = _v.namespace == bind("namespace", _v.namespace)
_SPACES = prepared(sa.select(_n.namespace).order_by(_n.namespace), Space)
#: The chunks of these keys in a namespace, and what each is of: its document, and without one what has its id.
FOUND = family(
    lambda keys: sa.union_all(
        sa.select(_v.id, _v.document_id.label("of")).where(_within, _v.document_id.in_(keys)),
        sa.select(_v.id, _v.id).where(_within, _v.id.in_(keys), _v.document_id.is_(None)),
    ),
    ChunkOf,
)
REMOVE = family(lambda keys: sa.delete(VECTORS).where(_within, _v.id.in_(keys)))
BRANCHES_OF = family(lambda keys: sa.select(_b.id).where(_b.session_id.in_(keys)), IdRow)


def with_chunks(unit: Unit, keys: Iterable[str]) -> set[str]:
    """Return those of these messages, branches and sessions that have chunks."""
    return {of for _, _, of in _found(unit, keys)}


def counted(unit: Unit, keys: Iterable[str]) -> int:
    """Return how many chunks `remove` would remove."""
    return sum(1 for _ in _found(unit, keys))


def remove(unit: Unit, keys: Iterable[str]) -> int:
    """Remove the chunks of these messages, branches and sessions; how many there were."""
    found: dict[str, list[str]] = {}
    for namespace, key, _ in _found(unit, keys):
        found.setdefault(namespace, []).append(key)
    return sum(_removed(unit, namespace, few) for namespace in found for few in some(found[namespace]))


def places(unit: Unit, sessions: Iterable[str]) -> set[str]:
    """Return what chunks can be of, beside messages: these sessions and their branches."""
    given = set(sessions)
    return given | {row["id"] for row in rows(unit, BRANCHES_OF, given)}


def _found(unit: Unit, keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Return each chunk's namespace, id and what it is of. The indexes of chunks begin with the namespace."""
    given = list(some(keys))
    for space in unit.rows(_SPACES) if given else ():
        for few in given:
            statement, values = FOUND.of(few)
            for row in unit.rows(statement, {**values, **space}):
                yield space["namespace"], row["id"], row["of"]


def _removed(unit: Unit, namespace: str, ids: list[str]) -> int:
    statement, values = REMOVE.of(ids)
    return unit.change(statement, {**values, "namespace": namespace})
