"""The store for coroutines."""

from lastlight_state.aio.store import AsyncStateStore, AsyncTransaction, AsyncView

__all__ = ["AsyncStateStore", "AsyncTransaction", "AsyncView"]
