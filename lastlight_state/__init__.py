"""The durable state layer for agent systems.

Workflow runs and how to resume them, approvals, chat sessions and append-only event logs, on SQLite by default and
Postgres as an option::

    from lastlight_state import StateStore

    with StateStore.open() as store:
        ...

Importing the package loads nothing: each name below loads its module when it is first used.
"""

import os
from typing import TYPE_CHECKING, Any

if os.name == "nt":
    raise ImportError("lastlight_state runs on Linux and macOS, not on Windows: use it in WSL there")

from lastlight_state.lazy import load

if TYPE_CHECKING:
    from lastlight_state import errors
    from lastlight_state.aio import AsyncStateStore, AsyncTransaction, AsyncView
    from lastlight_state.aio.tenants import AsyncTenants
    from lastlight_state.db.lists.pages import aiterate, iterate
    from lastlight_state.db.rows.records import Page
    from lastlight_state.db.schema.sealing import Codec, ContextCodec
    from lastlight_state.domains import Transaction, View
    from lastlight_state.errors import (
        AlreadyAnswered,
        AlreadyExists,
        BackendBusy,
        BackendError,
        BackendUnavailable,
        ClaimLost,
        Conflict,
        CorruptData,
        FrameChainBroken,
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
        SealedValue,
        StaleVersion,
        StateError,
        StoreClosed,
        UnsafePath,
    )
    from lastlight_state.settings import Settings
    from lastlight_state.stopping import stop_on_sigterm
    from lastlight_state.store import StateStore
    from lastlight_state.tenants import Tenants

__version__ = "0.1.0rc1"

#: The modules that define the public names, except errors.
_HOMES = {
    "AsyncStateStore": "aio",
    "AsyncTenants": "aio.tenants",
    "AsyncTransaction": "aio",
    "AsyncView": "aio",
    "Codec": "db.schema.sealing",
    "ContextCodec": "db.schema.sealing",
    "Page": "db.rows.records",
    "Settings": "settings",
    "StateStore": "store",
    "Tenants": "tenants",
    "Transaction": "domains",
    "View": "domains",
    "aiterate": "db.lists.pages",
    "iterate": "db.lists.pages",
    "stop_on_sigterm": "stopping",
}

__all__ = [
    "AlreadyAnswered",
    "AlreadyExists",
    "AsyncStateStore",
    "AsyncTenants",
    "AsyncTransaction",
    "AsyncView",
    "BackendBusy",
    "BackendError",
    "BackendUnavailable",
    "ClaimLost",
    "Codec",
    "Conflict",
    "ContextCodec",
    "CorruptData",
    "FrameChainBroken",
    "InvalidValue",
    "LostRace",
    "MisuseError",
    "NestedTransaction",
    "NewerSchema",
    "NotFound",
    "NotMigrated",
    "NotSupported",
    "Page",
    "PayloadTooLarge",
    "ReadOnlyTransaction",
    "ReservedName",
    "SchemaError",
    "SchemaMismatch",
    "SealedValue",
    "Settings",
    "StaleVersion",
    "StateError",
    "StateStore",
    "StoreClosed",
    "Tenants",
    "Transaction",
    "UnsafePath",
    "View",
    "aiterate",
    "errors",
    "iterate",
    "stop_on_sigterm",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return load("lastlight_state.errors")
    value = getattr(load(f"lastlight_state.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
