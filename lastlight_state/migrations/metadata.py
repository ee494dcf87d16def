"""All models, guards and reactions of the central schema together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Identity, Index
from sqlalchemy.engine import Dialect

from lastlight_state.backends.vector_indexes import PREFIX as VECTOR_INDEXES
from lastlight_state.checkpoints import models as checkpoints_models
from lastlight_state.conversations import (
    guards as conversations_guards,
    guards as conversations_indexes,
    guards as conversations_views,
    models as conversations_models,
)
from lastlight_state.db.schema.base import VERSION_TABLE, Base
from lastlight_state.db.schema.declarations import COMMENT_PREFIX
from lastlight_state.db.schema.guards import (
    EVENTS,
    declared_derived_rows,
    declared_guards,
    declared_reactions,
    keep_spelling,
    keep_words,
)
from lastlight_state.db.schema.indexes import ONLY
from lastlight_state.journal import guards as journal_guards, models as journal_models
from lastlight_state.messaging import models as messaging_guards, models as messaging_models
from lastlight_state.outputs import models as outputs_guards, models as outputs_models
from lastlight_state.receipts import models as receipts_guards, models as receipts_models
from lastlight_state.schedules import (
    models as schedules_guards,
    models as schedules_models,
    models as schedules_reactions,
)
from lastlight_state.states import models as states_models
from lastlight_state.workflows import (
    guards as workflows_guards,
    guards as workflows_reactions,
    indexes as workflows_indexes,
    models as workflows_models,
)

#: The modules whose import declares the schema.
DECLARED_BY = (
    receipts_models,
    receipts_guards,
    workflows_models,
    workflows_indexes,
    workflows_guards,
    workflows_reactions,
    schedules_models,
    schedules_guards,
    schedules_reactions,
    messaging_models,
    messaging_guards,
    journal_models,
    journal_guards,
    outputs_models,
    outputs_guards,
    conversations_models,
    conversations_indexes,
    conversations_guards,
    conversations_views,
    checkpoints_models,
    states_models,
)

#: Every table and index of the central schema.
METADATA = Base.metadata

keep_spelling(METADATA)
keep_words(METADATA)

#: Every trigger of the central schema that refuses something.
GUARDS = declared_guards()

#: Every trigger of the central schema that changes rows.
REACTIONS = declared_reactions()

#: Every trigger of the central schema that maintains derived rows.
DERIVED_ROWS = declared_derived_rows()


# Filters for Alembic's autogenerate: a host application ignores our tables, our own revisions see only ours.

#: The prefix of output tables, by which they are recognised without the registry.
_OUTPUT_KEY = ["run_id", "node_id", "iteration"]
_OUTPUT_TIMES = {"row_created_at", "row_updated_at"}


def include_object(element: Any, name: str | None, kind: str, reflected: bool, *_: Any) -> bool:
    """Return False for the library's tables and indexes.

    For a host application's ``context.configure(include_object=...)``. Only an object found in the database can be
    ours, never one that the host declares. On Postgres our tables are recognised by their comments, in every schema, so
    that a host may have tables of the same names in other schemas.
    """
    if not reflected:
        return True
    table = element if kind == "table" else element.table
    named = _is_ours(element, name, kind) or table.name.startswith(VECTOR_INDEXES)
    ours = named and (table.name == VERSION_TABLE or _has_our_mark(table))
    return not (ours or _is_output(element, kind))


def options(dialect: Dialect) -> dict[str, Any]:
    """Return the Alembic options for our own revisions.

    Alembic then sees only our tables and this product's indexes.
    """

    def include(element: Any, name: str | None, kind: str, *_: Any) -> bool:
        return _is_ours(element, name, kind) and (kind != "index" or is_made_on(element, dialect.name))

    return {
        "version_table": VERSION_TABLE,
        "include_object": include,
        "compare_type": True,
        "compare_server_default": True if dialect.supports_identity_columns else _compare_without_identity,
    }


def is_made_on(index: Index, product: str) -> bool:
    """True if this index exists on this product."""
    return index.info.get(ONLY) in (None, product)


def is_over_expressions(index: Index) -> bool:
    """True for an index over expressions, which SQLAlchemy does not read on SQLite."""
    return not all(isinstance(part, Column) for part in index.expressions)


def declared_triggers(product: str) -> Iterator[tuple[str, str]]:
    """Yield table and name of each trigger that exists on this product."""
    for guard in GUARDS:
        if guard.only in (None, product):
            yield guard.table, guard.name
    for reaction in REACTIONS:
        if reaction.only not in (None, product):
            continue
        yield from ((reaction.table, f"{reaction.name}_{event}") for event in EVENTS)
    for derived in DERIVED_ROWS:
        yield from ((derived.table, name) for name, *_ in derived.triggers())


def _compare_without_identity(*given: Any) -> bool | None:
    """Return False ("no difference") for an identity column. For others return None, so that Alembic compares them."""
    *_, declared, _rendered = given
    return False if isinstance(declared, Identity) else None


def _is_ours(element: Any, name: str | None, kind: str) -> bool:
    table = name if kind == "table" else element.table.name
    return table in METADATA.tables or table == VERSION_TABLE


def _has_our_mark(table: Any) -> bool:
    """True if a table of the database with one of our names has our comment.

    A table without a comment is ours if it is in our own schema.
    """
    return table.schema is None if table.comment is None else str(table.comment).startswith(COMMENT_PREFIX)


def _is_output(element: Any, kind: str) -> bool:
    """True for an output table or an object of one. Goes by the name, because Alembic does not read our registry."""
    table = element if kind == "table" else element.table
    key = [column.name for column in table.primary_key]
    return key == _OUTPUT_KEY and set(table.columns.keys()) >= _OUTPUT_TIMES
