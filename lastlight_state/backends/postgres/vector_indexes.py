"""Indexes of embeddings on Postgres, by the extension pgvector: HNSW over unit vectors of 16 bits.

An index is a table of its own beside `vectors`, with the unit vectors of one namespace. Triggers of `vectors` keep that
table right in the transaction of whoever writes a chunk, in whatever way. A search takes ids from there, and everything
else from `vectors`: an id without a chunk is passed over, and scores are computed from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from lastlight_state.backends.base import Checkout
from lastlight_state.backends.postgres.driver import translate_errors
from lastlight_state.backends.postgres.pool import await_answers
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.backends.vector_indexes import PREFIX, BuiltIndex, IndexState, stem_of
from lastlight_state.errors import BackendUnavailable, Conflict, NotSupported

#: The functions beside the tables: one reads the bytes of an embedding, and the other is called by triggers.
_READS, _KEEPS = "lastlight_unit_halfvec", "lastlight_keep_vector_index"
FUNCTIONS = (f"{_KEEPS}()", f"{_READS}(bytea, bigint)")
#: The most numbers of an embedding in an index, and the oldest version of the extension that has 16 bits.
MOST_DIMENSIONS, OLDEST = 4_000, (0, 7)
#: How many chunks are read together when an index is made: others who replace these wait meanwhile.
_BATCH = 1_000
#: Who waits for the lock of `vectors` makes everybody wait who comes later.
_LOCK_SECONDS = 5

#: The factor of a number of 32 bits by its sign and exponent, for a fraction of 128 to 256. Numbers that are smaller
#: than these hold are 0, and so are NaN and infinity, which no embedding has.
_SCALES = ",".join("0" if e in (0, 255) else repr(sign * 2.0 ** (e - 134)) for sign in (1.0, -1.0) for e in range(256))
#: 16 bits hold 11 of a fraction, so the lowest byte of each number is not read. Another length has no vector.
_MAKE_READS = f"""
    CREATE FUNCTION {{home}}.{_READS}(embedding bytea, dimensions bigint) RETURNS {{ext}}.halfvec
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 20000
    BEGIN ATOMIC
        SELECT CASE WHEN length(embedding) = 4 * dimensions THEN {{ext}}.l2_normalize(ARRAY(
            SELECT ('{{{{{_SCALES}}}}}'::double precision[])
                [1 + 2 * get_byte(embedding, i + 3) + (get_byte(embedding, i + 2) >> 7)]
                * (128 + (get_byte(embedding, i + 2) & 127) + get_byte(embedding, i + 1) / 256.0::double precision)
            FROM (SELECT generate_series(0, length(embedding) - 4, 4) AS i) AS places
        )::real[]::{{ext}}.vector)::{{ext}}.halfvec END;
    END"""
#: Runs with the rights of its owner, so that a role which writes `vectors` needs no right to the index. No other role
#: may execute it: as a trigger of a table of its own, it would run that role's code as the owner. Its arguments are the
#: table of the index, the namespace and the length.
_MAKE_KEEPS = f"""
    CREATE FUNCTION {{home}}.{_KEEPS}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $keep$
    DECLARE place text := format('%I.%I', TG_TABLE_SCHEMA, TG_ARGV[0]);
    BEGIN
        IF TG_OP = 'TRUNCATE' THEN
            EXECUTE 'DELETE FROM ' || place;
            RETURN NULL;
        END IF;
        IF TG_OP <> 'INSERT' THEN
            IF OLD.namespace = TG_ARGV[1] THEN
                EXECUTE 'DELETE FROM ' || place || ' WHERE id = $1' USING OLD.id;
            END IF;
        END IF;
        IF TG_OP <> 'DELETE' THEN
            IF NEW.namespace = TG_ARGV[1] AND NEW.dimensions = TG_ARGV[2]::bigint THEN
                EXECUTE 'INSERT INTO ' || place
                    || ' SELECT $1, unit FROM (SELECT {{home}}.{_READS}($2, $3)) AS r (unit)'
                    || ' WHERE unit IS NOT NULL ON CONFLICT (id) DO UPDATE SET unit = excluded.unit'
                    USING NEW.id, NEW.embedding, NEW.dimensions;
            END IF;
        END IF;
        RETURN NULL;
    END $keep$;
    REVOKE ALL ON FUNCTION {{home}}.{_KEEPS}() FROM PUBLIC"""
_ONE = "{row}.namespace = {namespace} AND {row}.dimensions = {dimensions}"
_OLD, _NEW = _ONE.replace("{row}", "OLD"), _ONE.replace("{row}", "NEW")
_FIRES = f"EXECUTE FUNCTION {{home}}.{_KEEPS}('{{name}}', {{namespace}}, '{{dimensions}}')"
#: By the ends of their names.
_TRIGGERS = {
    "insert": f"AFTER INSERT ON {{home}}.vectors FOR EACH ROW WHEN ({_NEW}) {_FIRES}",
    "update": (
        f"AFTER UPDATE OF namespace, id, dimensions, embedding ON {{home}}.vectors FOR EACH ROW "
        f"WHEN (({_OLD}) OR ({_NEW})) {_FIRES}"
    ),
    "delete": f"AFTER DELETE ON {{home}}.vectors FOR EACH ROW WHEN ({_OLD}) {_FIRES}",
    "truncate": f"AFTER TRUNCATE ON {{home}}.vectors FOR EACH STATEMENT {_FIRES}",
}
_MAKE = "; ".join(
    [
        "BEGIN",
        f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'",
        (
            'CREATE TABLE {home}.{name} (id text COLLATE "C" PRIMARY KEY,'
            " unit {ext}.halfvec({dimensions}) STORAGE PLAIN NOT NULL)"
        ),
        "COMMENT ON TABLE {home}.{name} IS 'lastlight_state: an index of embeddings, derived data'",
        *(f"CREATE TRIGGER {{name}}_{event} {does}" for event, does in _TRIGGERS.items()),
        "COMMIT",
    ]
)
_DROP = "; ".join(
    [
        "BEGIN",
        f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'",
        *(f"DROP TRIGGER IF EXISTS {{name}}_{event} ON {{home}}.vectors" for event in _TRIGGERS),
        "DROP TABLE IF EXISTS {home}.{name}",
        "COMMIT",
    ]
)
#: The chunks of a batch stay until it is committed: whoever deletes one then finds its vector, too.
_FILL = f"""
    WITH last AS MATERIALIZED (
        SELECT max(id) AS id FROM (SELECT id FROM {{home}}.vectors
            WHERE namespace = {{namespace}} AND id > {{after}} ORDER BY id LIMIT {_BATCH}) AS next
    ), batch AS MATERIALIZED (
        SELECT id, embedding, dimensions FROM {{home}}.vectors
        WHERE namespace = {{namespace}} AND dimensions = {{dimensions}}
            AND id > {{after}} AND id <= (SELECT id FROM last)
        ORDER BY id FOR KEY SHARE
    ), filled AS (
        INSERT INTO {{home}}.{{name}}
        SELECT id, unit FROM (SELECT id, {{home}}.{_READS}(embedding, dimensions) FROM batch) AS r (id, unit)
        WHERE unit IS NOT NULL ON CONFLICT (id) DO NOTHING
    ) SELECT id FROM last"""
_BUILD = "CREATE INDEX CONCURRENTLY {name}_unit ON {home}.{name} USING hnsw (unit {ext}.halfvec_ip_ops)"
#: Who reads `vectors` may read what is derived.
_READERS = """
    SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
    FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = to_regclass(%s) AND a.privilege_type = 'SELECT'"""

#: Undoes its settings, also in a transaction of a caller's.
_NEAREST = f"""
    SAVEPOINT lastlight_nearest;
    SET LOCAL hnsw.ef_search = {{most}};
    SET LOCAL enable_sort = off;
    SELECT id FROM {{home}}.{{name}} ORDER BY unit OPERATOR({{ext}}.<#>)
        {{home}}.{_READS}({{bytes}}, {{dimensions}})::{{ext}}.halfvec({{dimensions}}) LIMIT {{most}};
    ROLLBACK TO SAVEPOINT lastlight_nearest;
    RELEASE SAVEPOINT lastlight_nearest"""

_EXTENSION = """
    SELECT n.nspname, string_to_array(substring(e.extversion FROM '^[0-9]+[.][0-9]+'), '.')::integer[]
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"""
_AVAILABLE = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"
_TABLE = """
    SELECT n.nspname, pg_has_role(c.relowner, 'USAGE')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"""
#: The index of a table that is not yet searched, or that was left, is not valid.
_IS_READY = "EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND NOT i.indisprimary AND i.indisvalid)"
_HOME = "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%s))"
_FIND = f"""
    SELECT t.nspname, n.nspname FROM pg_class c JOIN pg_namespace t ON t.oid = c.relnamespace,
        pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE c.relnamespace = {_HOME} AND c.relname = %s AND e.extname = 'vector' AND {_IS_READY}
        AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')"""
#: A lock of the session that makes or removes an index, by the name of the index.
_LOCK = "hashtextextended(concat_ws(':', 'lastlight_state', {schema}, {name}), 0)"
_IS_BUSY = f"""
    EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint =
            {_LOCK.format(schema="t.nspname", name="c.relname")})"""
_IS_INDEX = f"c.relkind = 'r' AND c.relname ~ '^{PREFIX}[0-9a-f]+_[0-9]+$'"
_TABLES = f"SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(%s) AND {_IS_INDEX}"
_ALL = f"""
    SELECT c.relname, n.namespace, split_part(c.relname, '_', 4)::integer, n.dimensions, {_IS_READY}, {_IS_BUSY},
        pg_total_relation_size(c.oid)
    FROM pg_class c JOIN pg_namespace t ON t.oid = c.relnamespace
    LEFT JOIN {{namespaces}} n ON split_part(c.relname, '_', 3) =
        left(encode(sha256(convert_to(n.namespace, 'UTF8')), 'hex'), length(split_part(c.relname, '_', 3)))
    WHERE c.relnamespace = {_HOME} AND {_IS_INDEX}
    ORDER BY c.relname"""
_LAG = """
    SELECT count(*) FROM {vectors} v WHERE v.namespace = {namespace} AND v.dimensions = {dimensions}
        AND length(v.embedding) = 4 * v.dimensions AND NOT EXISTS (SELECT FROM {index} n WHERE n.id = v.id)"""

_LACKING = "indexes of embeddings need pgvector 0.7 or newer; an administrator runs in this database: {}"


def drop_statements(driver: Any, schema: str) -> Iterator[str]:
    """Yield the statements that remove all indexes of a schema and their functions, once `vectors` is gone."""
    found = driver.execute(_TABLES, (quote_name(schema),)).fetchall()
    yield from (f"DROP TABLE {quote_name(schema)}.{name} RESTRICT" for (name,) in found)
    yield from (f"DROP FUNCTION IF EXISTS {quote_name(schema)}.{function} RESTRICT" for function in FUNCTIONS)


class PostgresVectorIndexes:
    """The part of the backend that makes and uses indexes of embeddings."""

    schema: str | None
    options: Any
    _qualified_name: Callable[[str], str]

    def vector_indexes(self, checkout: Checkout) -> Sequence[BuiltIndex]:
        sql = _ALL.format(namespaces=self._qualified_name("vector_namespaces"))
        with translate_errors():
            return [
                _built_index(*row)
                for row in checkout.driver.execute(sql, (self._qualified_name("vectors"),)).fetchall()
            ]

    def vector_index_lag(self, checkout: Checkout, index: BuiltIndex) -> int:
        named = {"vectors": self._qualified_name("vectors"), "index": self._qualified_name(index.name)}
        sql = _LAG.format(**named, namespace=literal(index.namespace or ""), dimensions=index.dimensions)
        with translate_errors():
            return int(checkout.driver.execute(sql).fetchone()[0])

    def make_vector_index(self, checkout: Checkout, namespace: str, dimensions: int) -> None:
        if dimensions > MOST_DIMENSIONS:
            told = f"an index takes embeddings of at most {MOST_DIMENSIONS} numbers, and these have {dimensions}"
            raise NotSupported(f"{told}: every search of this namespace is exact")
        driver, name = checkout.driver, f"{stem_of(namespace)}{dimensions}"
        with translate_errors(), self._alone(checkout, name) as home:
            places = {"home": quote_name(home), "ext": quote_name(_extension(driver)), "name": name}
            values = {"namespace": literal(namespace), "dimensions": dimensions}
            self._make_functions(driver, places)
            if driver.execute(_FIND, (self._qualified_name("vectors"), name)).fetchone() is None:
                if driver.execute("SELECT to_regclass(%s)", (f"{places['home']}.{name}",)).fetchone()[0] is not None:
                    driver.execute(_DROP.format(**places))  # an earlier call was cut off
                driver.execute(_MAKE.format(**places, **values))
                last: str | None = ""
                while last is not None:
                    fill = _FILL.format(**places, **values, after=literal(last))
                    [last] = driver.execute(fill).fetchone()
                driver.execute(_BUILD.format(**places))
            for (role,) in driver.execute(_READERS, (self._qualified_name("vectors"),)).fetchall():
                driver.execute(f"GRANT SELECT ON {places['home']}.{name} TO {role}")

    def drop_vector_indexes(self, checkout: Checkout, namespace: str) -> int:
        names = [one.name for one in self.vector_indexes(checkout) if one.name.startswith(stem_of(namespace))]
        for name in names:
            with translate_errors(), self._alone(checkout, name) as home:
                checkout.driver.execute(_DROP.format(home=quote_name(home), name=name))
        return len(names)

    def nearest(
        self, checkout: Checkout, namespace: str, dimensions: int, packed: bytes, most: int
    ) -> list[str] | None:
        driver, name = checkout.driver, f"{stem_of(namespace)}{dimensions}"
        with translate_errors():
            found = driver.execute(_FIND, (self._qualified_name("vectors"), name)).fetchone()
            if found is None:
                return None
            places = {"home": quote_name(found[0]), "ext": quote_name(found[1]), "name": name}
            query = {"bytes": f"'\\x{packed.hex()}'::bytea", "dimensions": dimensions, "most": most}
            cursor = driver.execute(_NEAREST.format(**places, **query), prepare=False)
            while cursor.description is None and cursor.nextset():
                pass
            return [str(key) for (key,) in cursor.fetchall()]

    def _make_functions(self, driver: Any, places: dict[str, str]) -> None:
        for function, makes in zip(FUNCTIONS, (_MAKE_KEEPS, _MAKE_READS), strict=True):
            there = driver.execute("SELECT to_regprocedure(%s)", (f"{places['home']}.{function}",)).fetchone()
            if there[0] is None:
                driver.execute(makes.format(**places))

    @contextmanager
    def _alone(self, checkout: Checkout, name: str) -> Iterator[str]:
        """Let no other call make or remove the index, and no statement time out. Yields the schema of the tables.

        The session is given up afterwards.
        """
        if self.options.pooler is not None:
            raise NotSupported("through a pooler no session stays: make and drop indexes on a direct connection")
        driver = checkout.driver
        table = driver.execute(_TABLE, (self._qualified_name("vectors"),)).fetchone()
        if table is None:
            raise NotSupported("there is no table `vectors`")
        home, is_owned = table
        if not is_owned:
            told = "only the owner of the table `vectors` makes and drops its indexes: open the store as that role"
            raise BackendUnavailable(told, reason="permission")
        checkout.broken = True
        driver.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        await_answers(driver, None)
        lock = _LOCK.format(schema=literal(home), name=literal(name))
        if not driver.execute(f"SELECT pg_try_advisory_lock({lock})").fetchone()[0]:
            raise Conflict("another call makes or drops this index", code="already_running")
        yield home
        driver.execute(f"SELECT pg_advisory_unlock({lock})")


def _extension(driver: Any) -> str:
    """Return the schema of the extension, which is made if the role may. Raises `NotSupported`."""
    found = driver.execute(_EXTENSION).fetchone()
    if found is None:
        making = "CREATE EXTENSION vector"
        if not driver.execute(_AVAILABLE).fetchone()[0]:
            raise NotSupported(_LACKING.format(f"{making} (which the server has not: its package is pgvector)"))
        try:
            driver.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            raise NotSupported(_LACKING.format(making)) from error
        found = driver.execute(_EXTENSION).fetchone()
    schema, version = found
    if tuple(version) < OLDEST:
        raise NotSupported(_LACKING.format("ALTER EXTENSION vector UPDATE"))
    return str(schema)


def _built_index(
    name: str, namespace: str | None, dimensions: int, known: int | None, valid: bool, busy: bool, size: int
) -> BuiltIndex:
    state: IndexState = "ready" if valid else "building" if busy else "failed"
    if valid and known != dimensions:
        state = "unused"
    return BuiltIndex(name, namespace, dimensions, state, size)
