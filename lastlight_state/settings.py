"""Settings by name: from arguments, from the environment as ``LASTLIGHT_STATE_<NAME>``, else these defaults.

An argument of `lastlight_state.StateStore.open` beats a `Settings` object, which beats the environment.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from lastlight_state.errors import InvalidValue

PREFIX = "LASTLIGHT_STATE_"
DATABASE_FILE = "lastlight.db"


class Limits(BaseSettings):
    """Bounds of what callers may store, in bytes of UTF-8 unless said otherwise. Larger values stay readable."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    context: int = 256 * 1024
    scratch: int = 64 * 1024
    phase_history: int = 256 * 1024
    phase_entries: int = 2_000
    output_text: int = 1024 * 1024
    message_content: int = 1024 * 1024


class Settings(BaseSettings):
    """Everything that can be set. Durations are in seconds where they are numbers."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", populate_by_name=True, env_nested_delimiter="__"
    )

    url: str | None = None
    schema_name: str | None = Field(None, validation_alias=AliasChoices("schema", "schema_name", PREFIX + "SCHEMA"))
    state_dir: Path = Field(
        Path("state"), validation_alias=AliasChoices("state_dir", PREFIX + "STATE_DIR", "STATE_DIR")
    )
    migrate: bool | None = None
    read_only: bool = False
    durability: Literal["normal", "full"] = "normal"
    journal_mode: Literal["wal", "delete", "truncate", "persist"] | None = None
    wal_autocheckpoint: int = Field(1000, ge=0)
    pool_size: int = Field(5, ge=1, le=1000)
    pooler: Literal["transaction"] | None = None
    statement_timeout: float | None = Field(None, gt=0)
    lock_timeout: float | None = Field(None, gt=0)
    limits: Limits = Limits()
    messaging_idle_timeout: timedelta | None = timedelta(minutes=30)
    agent_log_dir: Path | None = None
    session_types: tuple[tuple[tuple[str, ...], str], ...] = ()
    line_sync: Literal["os", "end", "record"] = "end"

    @property
    def agent_sessions(self) -> Path:
        """The directory of the agent's event logs."""
        return self.agent_log_dir or self.state_dir / "agent-sessions"


def load_settings(base: Settings | None, **arguments: Any) -> Settings:
    """The settings in force: ``base`` or the environment, with the arguments that are not None on top.

    Raises `InvalidValue` naming the first setting that is wrong.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        if base is None:
            return Settings(**given)
        return base if not given else Settings(**{**base.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidValue(".".join(str(part) for part in first["loc"]), first["msg"]) from None
