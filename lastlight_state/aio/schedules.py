"""``store.schedules`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face
from lastlight_state.schedules import Schedules


class AsyncSchedules(Face[Schedules]):
    """``store.schedules``"""
