"""The cache: results that may be reused, but only while their schema stays the same.

A key names everything that a result depends on. The schema's signature and the model's digest are part of the key, so
that a change of either causes a cache miss. Two versions of a program that run at the same time use separate entries.
An entry can be computed again, so it may be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, bind, columns_of, every_column_of, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.outputs import models
from lastlight_state.outputs.catalog.definitions import Targeted
from lastlight_state.outputs.checks import content_for
from lastlight_state.outputs.models import CACHE
from lastlight_state.outputs.records import CachedOutput, CacheSummary, with_table
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import data_from_json, instance_of

_LIMITS = limits_of(CACHE)

M = TypeVar("M")

_PREFIX = "lastlight-output-cache-1"
_SUMMARY = every_column_of(CacheSummary, CACHE, hidden={"payload", "model_digest"})
_HIT = (*columns_of(CachedOutput, CACHE), CACHE.c.payload)
_now = bind("now", CACHE.c.expires_at)
_expired = sa.and_(CACHE.c.expires_at.is_not(None), CACHE.c.expires_at <= _now)
_by_name = {name: CACHE.c[name] == bind(name, CACHE.c[name]) for name in ("workflow_name", "node_id", "output_key")}
_this_entry = CACHE.c.cache_key == bind("cache_key", CACHE.c.cache_key)
_this_schema = CACHE.c.schema_signature == bind("schema_signature", CACHE.c.schema_signature)


@dataclass(frozen=True)
class CacheKey:
    """The key of a cached result: everything that the result depends on.

    ``basis`` is any JSON value that holds all for which the key has no separate field: prompt, inputs, tools, source.
    Only a digest of the basis is stored. ``agent_signature`` distinguishes agents.
    """

    workflow_name: str
    node_id: str
    basis: Any
    agent_signature: str | None = None


FIND = statement_of(sa.select(*_HIT).where(_this_entry, _this_schema, ~_expired))


def _ensure_statement() -> Statement:
    """Store an entry; the first one wins, unless it has expired."""
    row = insert(CACHE).values({column.name: bind(column.name, column) for column in CACHE.c})
    replaced = {name: row.excluded[name] for name in ("source_run_id", "created_at", "expires_at", "payload")}
    return statement_of(
        row.on_conflict_do_update(index_elements=[CACHE.c.cache_key], set_=replaced, where=_expired).returning(*_HIT)
    )


ENSURE = _ensure_statement()
GET = statement_of(sa.select(*_HIT).where(_this_entry))
LIST = Listing(
    "output_cache",
    _SUMMARY,
    order=(CACHE.c.created_at, CACHE.c.cache_key),
    filters=_by_name,
    row=CacheSummary,
)
_CLEARED = {**_by_name, "expired": _expired}
CLEAR = {
    names: statement_of(sa.delete(CACHE).where(*(_CLEARED[name] for name in sorted(names))))
    for names in (
        frozenset(chosen)
        for chosen in (
            ["expired"],
            ["workflow_name"],
            ["node_id"],
            ["workflow_name", "node_id"],
            ["workflow_name", "expired"],
            ["node_id", "expired"],
            ["workflow_name", "node_id", "expired"],
        )
    )
}


class Cache(Targeted):
    """``store.outputs.cache``: store and find results that may be reused."""

    def find(self, key: CacheKey, target: OutputTable[M] | str) -> CachedOutput[M] | None:
        """Return the cached result, or None if it is missing, expired, stored for another schema or invalid.

        Invalid cache entries never raise an error: without a hit the task runs. Store a hit as an output with
        `results.put`.
        """
        table = self._target(target)
        values = {"cache_key": _digest(key, table), "schema_signature": table.signature, "now": self._now()}
        try:
            found = self._reading(lambda unit: unit.row(FIND, values))
            return None if found is None else _hit(table, found)
        except (CorruptData, InvalidValue):
            return None

    def ensure(
        self,
        key: CacheKey,
        target: OutputTable[M] | str,
        value: Any,
        *,
        ttl: timedelta | None = None,
        source_run_id: str | None = None,
    ) -> CachedOutput[M]:
        """Store a result, or return the result that was stored first. An expired result is replaced.

        The value is validated like an output: raises `InvalidValue` with ``issues``, and `PayloadTooLarge`. Only domain
        fields are kept.
        """
        table = self._writable(target)
        now = self._now()
        row: Row = {
            "cache_key": _digest(key, table),
            "workflow_name": key.workflow_name,
            "node_id": key.node_id,
            "output_key": table.key,
            "table_name": table.table_name,
            "schema_signature": table.signature,
            "model_digest": table.model_digest,
            "agent_signature": key.agent_signature,
            "source_run_id": valid.optional("source_run_id", source_run_id, _LIMITS.source_run_id),
            "created_at": now,
            "expires_at": None if ttl is None else _after(now, ttl),
            "payload": _text(content_for(table, value).json),
        }
        stored = self._once(lambda unit: unit.row(ENSURE, {**row, "now": now}), repeatable=True)
        if stored is None:
            stored = self._reading(lambda unit: unit.row(GET, row))
        if stored is None:  # cleared in between
            return self.ensure(key, table, value, ttl=ttl, source_run_id=source_run_id)
        return _hit(table, stored)

    def list(
        self,
        *,
        workflow_name: str | None = None,
        node_id: str | None = None,
        output_key: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CacheSummary]:
        """Return a page of cache entries without their payloads, newest first."""
        given = _checked_filters(workflow_name=workflow_name, node_id=node_id, output_key=output_key)
        return self._page(LIST, given, limit, page_token)

    def clear(
        self, *, workflow_name: str | None = None, node_id: str | None = None, which: models.Which = "all"
    ) -> int:
        """Delete cache entries, and return how many.

        At least one condition is required, for example ``which="expired"``.
        """
        given = _checked_filters(workflow_name=workflow_name, node_id=node_id)
        if valid.word("which", which, models.WHICH) == "expired":
            given["expired"] = None
        if not given:
            raise InvalidValue("workflow_name", "must be given, or node_id, or which='expired'")
        values = {**given, "now": self._now()}
        return self._once(lambda unit: unit.change(CLEAR[frozenset(given)], values))


def _digest(key: Any, table: OutputTable[Any]) -> str:
    checked = valid.argument_group("key", key, CacheKey)
    valid.identifier("workflow_name", checked.workflow_name, _LIMITS.workflow_name)
    valid.identifier("node_id", checked.node_id, _LIMITS.node_id)
    valid.optional("agent_signature", checked.agent_signature, _LIMITS.agent_signature)
    codec.encode_bytes("basis", checked.basis, max_depth=models.ROW_DEPTH)
    return codec.digest(
        [
            _PREFIX,
            checked.workflow_name,
            checked.node_id,
            table.table_name,
            table.signature,
            table.model_digest,
            checked.agent_signature,
            checked.basis,
        ]
    )


def _hit(table: OutputTable[Any], row: Row) -> CachedOutput[Any]:
    """Return the record of an entry. Raises `InvalidValue` where the content does not fit the table any more."""
    data = data_from_json(table.domain, row.pop("payload"), payload=table.is_payload)
    if table.shape is not None:
        instance_of(table.shape, data)
    made: CachedOutput[Any] = with_table(CachedOutput.of({**row, "data": data}), table)
    return made


def _after(now: datetime, ttl: Any) -> datetime:
    if not isinstance(ttl, timedelta) or ttl <= timedelta(0):
        raise InvalidValue("ttl", "must be a positive duration")
    try:
        return now + ttl
    except OverflowError:
        raise InvalidValue("ttl", "must end before the year 10000") from None


def _checked_filters(**filters: Any) -> Row:
    return {name: valid.lookup_text(name, value) for name, value in filters.items() if value is not None}


def _text(payload: Any) -> str:
    return codec.encode_bytes("payload", payload, max_depth=models.ROW_DEPTH).decode()
