"""A thread that grows step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite

NOTHING = Content("json", b"{}")


def content(data: bytes | str) -> Content:
    return Content("raw", data.encode() if isinstance(data, str) else data)


def step(number: int, values: dict[str, str] | None = None, **more: Any) -> NewCheckpoint:
    """Return the step of a number, which gives these channels new values under that number."""
    given = values or {}
    versions = {**more.pop("versions", {}), **dict.fromkeys(given, str(number))}
    new = {channel: content(value) for channel, value in given.items()}
    return NewCheckpoint(f"step-{number}", NOTHING, versions, new, **more)


def write(idx: int, data: str, **more: Any) -> NewWrite:
    return NewWrite(idx, more.pop("channel", "a"), content(data), **more)


def texts(checkpoint: Any) -> dict[str, str]:
    """Return the values of a checkpoint as texts."""
    return {channel: value.data.decode() for channel, value in checkpoint.values.items()}


def ids(page: Any) -> list[str]:
    return [one.id for one in page]


def machine_steps(store: Any, act: Callable[[Any], object]) -> int:
    """Return how many steps of SQLite's machine a call takes."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with store.transaction() as tx:
        driver = tx._scope.unit.execute.__self__
        driver.set_progress_handler(count, 1)
        act(tx)
        driver.set_progress_handler(None, 0)
    return steps
