"""The vocabularies of the outputs domain, and its bounds that are no column's."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db.valid import words

#: What a column holds; the word that signatures and the registry use. ``blob`` occurs in custom tables only.
Token = Literal["text", "integer", "real", "boolean", "decimal", "timestamp", "json", "blob"]
#: A column for each field, one column for the whole value, or a table of the caller's making.
Kind = Literal["columns", "payload", "custom"]
#: Why a row left an output table.
Cause = Literal["replaced", "withdrawn"]
#: Which entries of the cache a call clears.
Which = Literal["all", "expired"]

WHICH = words(Which)
REPLACED: Cause = "replaced"
WITHDRAWN: Cause = "withdrawn"

#: The one user column of a payload-only table, and the field that makes a model payload-only.
PAYLOAD = "payload"

#: The columns that every output table begins with.
BOOKKEEPING = ("run_id", "node_id", "iteration", "row_created_at", "row_updated_at")

COLUMN_NAME = 63

# Bytes of UTF-8.
ROW = 1024 * 1024
LARGEST_ROW = 16 * 1024 * 1024
SNAPSHOT = 64 * 1024 * 1024
QUERY = 256 * 1024

# Levels of nesting.
ROW_DEPTH = 64
SCHEMA_DEPTH = 200

FIELDS = 200
QUERY_ROWS = 10_000
QUERY_SECONDS = 3_600
LAST_ITERATION = 2**31 - 1
#: Digits of a decimal before the point, and after it.
DECIMAL_DIGITS = 1_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
INPUT_KIND = "run_input"
OUTPUT_TABLE = "output"
OUTPUT = "output_row"
