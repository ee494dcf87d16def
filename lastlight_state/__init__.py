"""The durable state layer for agent systems.

Workflow runs and how to resume them, approvals, chat sessions and append-only event logs, on SQLite by default and
Postgres as an option::

    from lastlight_state import StateStore

    with StateStore.open() as store:
        ...
"""

from lastlight_state import errors
from lastlight_state.aio import AsyncStateStore, AsyncTransaction, AsyncView
from lastlight_state.errors import (
    AlreadyAnswered,
    AlreadyExists,
    BackendBusy,
    BackendError,
    BackendUnavailable,
    ClaimLost,
    Conflict,
    CorruptData,
    InvalidValue,
    LostRace,
    MisuseError,
    NestedTransaction,
    NewerSchema,
    NotFound,
    NotMigrated,
    NotSupported,
    PayloadTooLarge,
    ReadOnlyTransaction,
    ReservedName,
    SchemaError,
    SchemaMismatch,
    StaleVersion,
    StateError,
    StoreClosed,
    UnsafePath,
)
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore, Transaction, View

__version__ = "0.1.0"

__all__ = [
    "AlreadyAnswered",
    "AlreadyExists",
    "AsyncStateStore",
    "AsyncTransaction",
    "AsyncView",
    "BackendBusy",
    "BackendError",
    "BackendUnavailable",
    "ClaimLost",
    "Conflict",
    "CorruptData",
    "InvalidValue",
    "LostRace",
    "MisuseError",
    "NestedTransaction",
    "NewerSchema",
    "NotFound",
    "NotMigrated",
    "NotSupported",
    "PayloadTooLarge",
    "ReadOnlyTransaction",
    "ReservedName",
    "SchemaError",
    "SchemaMismatch",
    "Settings",
    "StaleVersion",
    "StateError",
    "StateStore",
    "StoreClosed",
    "Transaction",
    "UnsafePath",
    "View",
    "errors",
]
