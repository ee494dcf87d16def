"""Citus, the distributed Postgres: the properties that a database with this extension reports.

A distributed schema is stored whole on one server, a worker. Clients reach it through the coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lastlight_state.backends.base import Checkout, Options
from lastlight_state.backends.facts import Measures, TableSize
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.errors import NotSupported

EXTENSION = "citus"

#: The local catalogs of one server. ``pg_dist_schema`` is there from version 12 on.
FACTS = (
    "SELECT (SELECT groupid FROM pg_catalog.pg_dist_local_group),"
    " (SELECT nodename || ':' || nodeport FROM pg_catalog.pg_dist_node WHERE groupid = 0 LIMIT 1),"
    " EXISTS (SELECT FROM pg_catalog.pg_dist_schema WHERE schemaid = to_regnamespace({schema})::oid),"
    " current_setting('citus.enable_schema_based_sharding', true),"
    " current_setting('citus.enable_unsafe_triggers', true)"
)


@dataclass(frozen=True)
class Citus:
    """A server's properties: the version of its Citus extension, its role, and whether it distributes our schema."""

    version: str
    is_worker: bool
    coordinator: str | None
    is_distributed: bool
    distributes_schemas: str | None
    unsafe_triggers: str | None

    @classmethod
    def of(cls, version: str, facts: Sequence[Any]) -> Citus:
        """Create a `Citus` from the row that the query `FACTS` returned."""
        group, *others = facts
        return cls(version, bool(group), *others)

    def __str__(self) -> str:
        place = "a worker" if self.is_worker else "the coordinator"
        schema = "distributed" if self.is_distributed else "not distributed"
        settings = f"schema-based sharding {self.distributes_schemas}, unsafe triggers {self.unsafe_triggers}"
        return f"{place} of Citus {self.version}, schema {schema}, {settings}"

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems for which the schema cannot be distributed or its guards cannot be created."""
        amiss = {
            "the server is a worker, by which nobody should enter": self.is_worker,
            "the schema is not distributed": not self.is_distributed,
            "citus.enable_schema_based_sharding is not on, so that new schemas are not distributed": (
                self.distributes_schemas != "on"
            ),
            "citus.enable_unsafe_triggers is not on, so that a migration of a distributed schema is refused": (
                self.unsafe_triggers != "on"
            ),
        }
        return tuple(problem for problem, is_so in amiss.items() if is_so)

    def refusal(self) -> NotSupported | None:
        """Return the reason to refuse connections to this server, or None if it is the coordinator."""
        if not self.is_worker:
            return None
        where = f" at {self.coordinator}" if self.coordinator else ""
        return NotSupported(
            f"the server is a worker of Citus {self.version}, where ids come from another range and named locks "
            f"exclude nobody who enters elsewhere: connect to the coordinator{where}"
        )


_TABLES = """
    SELECT c.relname, CASE WHEN p.logicalrelid IS NULL THEN pg_total_relation_size(c.oid)
        ELSE citus_total_relation_size(c.oid) END
    FROM pg_class AS c LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = c.oid
    WHERE c.relkind IN ('r', 'p') AND c.relnamespace = to_regnamespace(coalesce(quote_ident(%s), current_schema()))
        AND c.relname = ANY (%s)
"""
_DATABASE = (
    "SELECT sum(result::bigint)::bigint FROM run_command_on_all_nodes('SELECT pg_database_size(current_database())')"
)


class CitusPart:
    """The part of the backend that handles Citus. ``citus`` has the properties that a server reported."""

    schema: str | None
    options: Options
    citus: Citus | None = None
    writes_in_ctes: bool

    def meet(self, extensions: Mapping[str, str]) -> None:
        if EXTENSION not in extensions:
            return
        place = literal(quote_name(self.schema)) if self.schema else "quote_ident(current_schema())"
        [facts] = self.peek(FACTS.format(schema=place)) or [(0, None, False, None, None)]  # type: ignore[attr-defined]
        self.citus = Citus.of(extensions[EXTENSION], facts)
        if not self.options.any_server and (refusal := self.citus.refusal()):
            raise refusal
        self.writes_in_ctes = not self.citus.is_distributed  # one statement, passed on whole, takes longer than two

    def distribution(self) -> tuple[str, tuple[str, ...]] | None:
        return None if self.citus is None else (str(self.citus), self.citus.problems)

    def distributed_measures(self, checkout: Checkout, found: Measures, tables: Sequence[str]) -> Measures:
        """Return the database's measures, with the bytes stored on all servers.

        Rows on other servers are not counted.
        """
        if self.citus is None:
            return found
        [(whole,)] = checkout.driver.execute(_DATABASE).fetchall()
        sizes = checkout.driver.execute(_TABLES, (self.schema, list(tables))).fetchall()
        return replace(found, size_bytes=whole, tables={name: TableSize(None, size) for name, size in sizes})
