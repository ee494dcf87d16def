"""A query of LangGraph's memories over 20,000 items with embeddings of 384 numbers, beside the shipped stores.

`SqliteStore` compares by functions of sqlite-vec. Where the standard library cannot load them, pysqlite3 does.
`PostgresStore` asks pgvector for an approximate index, HNSW. The share of the ten nearest that each finds is printed.
Run it where LangGraph is installed::

    make frameworks ARGS=--collect-only
    .venv/frameworks/bin/python -m benchmarks --only memories
"""

from __future__ import annotations

import sqlite3
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.databases import Side
from benchmarks.measure import Result, compare
from benchmarks.vectors import DIMENSIONS, QUERIES, TEXT, TOP, clustered, nearest_of, tell_recall
from lastlight_state.lazy import load

ROWS, BATCH = 20_000, 500


def results(side: Side) -> Iterator[Result]:
    """Yield a query without and with a filter; nothing where LangGraph's stores are missing."""
    try:
        from lastlight_state.integrations.langgraph_store import LangGraphStore  # noqa: PLC0415 - an optional library

        with ExitStack() as stack:
            embeddings = clustered(ROWS + QUERIES)
            config = {"dims": DIMENSIONS, "fields": ["text"], "embed": lambda texts: _embedded(embeddings, texts)}
            stores = {"ours": LangGraphStore(side.store, index=config), "theirs": _shipped(side, config, stack)}
            yield from _compared(side, stores, embeddings)
    except ImportError as error:
        print(f"memories: left out ({error})", file=sys.stderr)


def _compared(side: Side, stores: dict[str, Any], embeddings: Sequence[bytes]) -> Iterator[Result]:
    name, asked = f"query of {ROWS:,} memories", range(ROWS, ROWS + QUERIES)
    nearest = [{f"k{at}" for at in some} for some in nearest_of(embeddings[:ROWS], [embeddings[at] for at in asked])]
    for whose, store in stores.items():
        _fill(store)
        found = [{one.key for one in store.search(("user",), query=f"#{at} ", limit=TOP)} for at in asked]
        tell_recall(f"{name}, {whose}", side.name, nearest, found)
    for what, wanted in (("", None), (", with a filter", {"kind": 3})):
        ours, theirs = (
            lambda store=store, wanted=wanted: store.search(("user",), query=f"#{ROWS} ", filter=wanted, limit=TOP)
            for store in stores.values()
        )
        yield compare(f"{name}{what}", side.name, ours, theirs, goal=None, calls=1, rounds=5)


def _fill(store: Any) -> None:
    from langgraph.store.base import PutOp  # noqa: PLC0415 - an optional library

    for first in range(0, ROWS, BATCH):
        several = range(first, min(ROWS, first + BATCH))
        store.batch(
            [PutOp(("user", f"{at % 50}"), f"k{at}", {"text": f"#{at} {TEXT}", "kind": at % 7}) for at in several]
        )


def _embedded(embeddings: Sequence[bytes], texts: Sequence[str]) -> list[list[float]]:
    """Return the embeddings of texts, in which their numbers stand. `SqliteStore` embeds whole items."""
    places = [int(text.partition("#")[2].partition(" ")[0]) for text in texts]
    return [[*struct.unpack(f"<{DIMENSIONS}f", embeddings[at])] for at in places]


def _shipped(side: Side, config: Any, stack: ExitStack) -> Any:
    if side.name == "sqlite":
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415 - an optional library

        driver = sqlite3 if hasattr(sqlite3.Connection, "enable_load_extension") else load("pysqlite3.dbapi2")
        path = str(side.folder / "shipped.db")
        connection = driver.connect(path, check_same_thread=False, isolation_level=None)
        stack.callback(connection.close)
        found = SqliteStore(connection, index=config)
    else:
        from langgraph.store.postgres import PostgresStore  # noqa: PLC0415 - an optional library

        found = stack.enter_context(PostgresStore.from_conn_string(side.url.replace("+psycopg", ""), index=config))
    found.setup()
    return found
