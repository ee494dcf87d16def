"""Something that happens between a look and what is done after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> list[str]:
    """Let ``act`` happen once, just before the next call of that function; the list holds its name afterwards."""
    real = getattr(owner, name)
    happened: list[str] = []

    def call(*given: Any, **named: Any) -> Any:
        if not happened:
            happened.append(name)
            act()
        return real(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return happened
