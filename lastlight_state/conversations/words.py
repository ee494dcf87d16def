"""The vocabularies of conversations, and the limits of what callers may store in them."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db.valid import words

InvocationKind = Literal["agent", "play", "flow", "fanout", "show-play", "engine"]
SourceKind = Literal["live", "imported_fs", "imported_codex"]
OnRepeat = Literal["skip", "keep"]
Mode = Literal["db", "json", "python"]
SaveMode = Literal["grow", "replace"]
Metric = Literal["cosine", "dot", "l2"]
Exactness = Literal["exact", "approximate"]

INVOCATION_KINDS = words(InvocationKind)
SOURCE_KINDS = words(SourceKind)
ON_REPEAT = words(OnRepeat)
MODES = words(Mode)
SAVE_MODES = words(SaveMode)
METRICS = words(Metric)
EXACTNESS = words(Exactness)
LIVE: SourceKind = "live"

#: The class of a message that names none, and its number.
UNKNOWN_CLASS, UNKNOWN_TYPE = "__unknown__", 0
#: The greatest number of the classes that are known from the start.
LAST_TYPE = 5

# Bytes of UTF-8.
NAME = 256
ROLE = 64
PATH = 4_096
CONTENT = 8 * 1024 * 1024
EXTRA = 8 * 1024 * 1024
METADATA = 256 * 1024
#: Of the text of a chunk.
CHUNK = 1024 * 1024
#: Of all messages or chunks of one call.
BATCH_BYTES = 32 * 1024 * 1024

#: The most messages that one call appends.
BATCH = 1_000
#: The most ids that one call asks for, and the most that `progressions.collection` returns.
MANY = 10_000
#: The most messages of a tree, counted in every branch that has them.
TREE = 50_000
#: The most branches of a tree.
TREE_BRANCHES = 1_000
#: The most ancestors that a branch has.
FORK_DEPTH = 1_000
#: The most numbers of an embedding.
DIMENSIONS = 16_384
#: The most that a search finds.
TOP = 1_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
MESSAGE = "message"
MESSAGE_TYPE = "message_type"
PROGRESSION = "progression"
SESSION = "session"
BRANCH = "branch"
CHUNK_KIND = "chunk"

#: The code of a `Conflict` about what forks have inherited.
FORK_PREFIX = "fork_prefix"
