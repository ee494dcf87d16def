"""Tables of ours made anew as partitioned ones, as an operator does it."""

from __future__ import annotations

from typing import Any

_DEFINED = """
    SELECT 2, pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = '{table}'::regclass
        AND NOT EXISTS (SELECT 1 FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.conrelid = i.indrelid)
    UNION ALL SELECT 1, 'ALTER TABLE {table} ADD CONSTRAINT ' || quote_ident(n.conname) || ' '
        || pg_get_constraintdef(n.oid)
        FROM pg_constraint n WHERE n.conrelid = '{table}'::regclass AND n.contype IN ('p', 'u', 'f')
    UNION ALL SELECT 4, 'ALTER TABLE ' || n.conrelid::regclass || ' ADD CONSTRAINT ' || quote_ident(n.conname) || ' '
        || pg_get_constraintdef(n.oid) FROM pg_constraint n WHERE n.confrelid = '{table}'::regclass AND n.contype = 'f'
    UNION ALL SELECT 3, pg_get_triggerdef(t.oid) FROM pg_trigger t
        WHERE t.tgrelid = '{table}'::regclass AND NOT t.tgisinternal
    ORDER BY 1, 2
"""


def partition(raw: Any, table: str, column: str, parts: int = 4) -> None:
    """Replace a table without rows by one with the same columns, keys, indexes and guards, in partitions by hash."""
    defined = [sql for _, sql in raw.execute(_DEFINED.format(table=table)).fetchall()]
    comment = raw.execute(f"SELECT obj_description('{table}'::regclass)").fetchall()[0][0]
    raw.execute(f"ALTER TABLE {table} RENAME TO replaced")
    kept = "INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING COMMENTS INCLUDING CONSTRAINTS"
    raw.execute(f"CREATE TABLE {table} (LIKE replaced {kept}) PARTITION BY HASH ({column})")
    raw.execute("DROP TABLE replaced CASCADE")
    for sql in defined:
        raw.execute(sql)
    raw.execute(f"COMMENT ON TABLE {table} IS '{comment.replace(chr(39), chr(39) * 2)}'")
    for part in range(parts):
        raw.execute(
            f"CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})"
        )
