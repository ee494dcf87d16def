"""Settings by name: from arguments, from environment variables ``LASTLIGHT_STATE_<NAME>``, or else defaults.

An argument of `lastlight_state.StateStore.open` overrides a `Settings` object, which overrides the environment.
"""

from __future__ import annotations

import difflib
import logging
import os
import shlex
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lastlight_state.errors import InvalidValue
from lastlight_state.special_files import open_binary

#: The most bytes that are read of a file with a URL or token.
_MOST_BYTES = 64 * 1024

# Reads the database's URL from a file, so that its password is in neither the process list nor the environment.


def url_in(file: Path, where: str) -> str:
    """Return the URL in a file, without the white space around it.

    ``where`` is the argument or variable that named the file. Raises `InvalidValue` with both names, but never with the
    file's content.
    """
    url = secret_in(file, where)
    if len(url.splitlines()) != 1:
        raise InvalidValue(where, f"{file}: expected one line with a URL, got {len(url.splitlines()) or 'none'}")
    return url


def secret_in(file: Path, where: str) -> str:
    """Return the text in a regular file, without the white space around it.

    ``where`` is the argument or variable that named the file. Raises `InvalidValue` with both names, also for a FIFO,
    to which no program may ever write.
    """
    try:
        with open_binary(Path(file)) as opened:
            return opened.read(_MOST_BYTES).decode("utf-8-sig").strip()
    except OSError as error:
        raise InvalidValue(where, f"{file}: {error.strerror}") from None
    except ValueError:
        raise InvalidValue(where, f"{file}: not UTF-8 text") from None


PREFIX = "LASTLIGHT_STATE_"
DATABASE_FILE = "lastlight.db"
#: The settings that choose the database. Only one of them may be given; if it is an argument, the others are ignored.
DATABASE = ("url", "url_file")

_log = logging.getLogger("lastlight_state")

#: The longest timeout: Postgres counts milliseconds in 32 bits.
_MOST_SECONDS = 2_147_483
#: The longest name on Postgres, which would cut longer ones.
_LONGEST_SCHEMA = 63


def _seconds(value: Any) -> Any:
    """Convert a number, or its text, to seconds. Other values are left to pydantic, which reads ISO 8601."""
    with suppress(TypeError, ValueError):
        return float(value)
    return value


Seconds = Annotated[timedelta, BeforeValidator(_seconds)]


class Limits(BaseModel):
    """Limits on what callers may store, in bytes of UTF-8 unless stated otherwise.

    Values that were stored under a larger limit can still be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    context: int = 256 * 1024
    scratch: int = 64 * 1024
    phase_history: int = 256 * 1024
    phase_entries: int = 2_000
    output_text: int = 1024 * 1024
    message_content: int = 1024 * 1024
    #: Limits of mailboxes: one file of a message, its number of files, all its files together, a value of the agent's
    #: state, and the number of places that an agent may send to.
    attachment: int = 25 * 2**20
    attachments: int = 50
    attachments_total: int = 100 * 2**20
    agent_state: int = 256 * 1024
    destinations: int = 1_000


def _says_anything(source: PydanticBaseSettingsSource) -> bool:
    """True if an environment or a file has any variable of these settings."""
    return not isinstance(source, EnvSettingsSource) or bool(source.env_vars)


class Settings(BaseSettings):
    """All settings, each with a description. `docs/promises.md` has the limits."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    url: str | None = Field(default=None, repr=False)  # may hold a password
    """The database: a path, ``sqlite:///…`` or ``postgresql://…``. Without one it is a file in ``state_dir``."""
    url_file: Path | None = None
    """A regular file that holds the URL; not together with ``url``."""
    replica: str | None = Field(default=None, repr=False)
    """Postgres: the URL of a server to read from."""
    max_staleness: float | None = Field(default=None, gt=0, le=86_400)
    """Postgres: how old, in seconds, what a replica shows may be."""
    schema_name: str | None = Field(
        default=None, min_length=1, validation_alias=AliasChoices(PREFIX + "SCHEMA", "schema")
    )
    """Postgres: the schema of the tables. Without one it is the connection's own."""
    state_dir: Path = Field(default=Path("state"), validation_alias=AliasChoices(PREFIX + "STATE_DIR", "state_dir"))
    """The folder of the default database and of all files; also ``STATE_DIR``."""
    migrate: bool | None = None
    """Whether opening migrates. Without it a store on SQLite does, and one on Postgres does not."""
    read_only: bool = False
    """Whether the store only reads."""
    durability: Literal["normal", "full"] = "normal"
    """``full`` keeps each commit when the power fails."""
    journal_mode: Literal["wal", "delete", "truncate", "persist"] | None = None
    """SQLite: the journal. Without it the file system decides."""
    wal_autocheckpoint: int = Field(default=1000, ge=0, le=2**31 - 1)
    """SQLite: pages of the log from which a checkpoint is made; 0 switches it off."""
    sqlite_driver: Literal["sqlite3", "pysqlite3"] | None = None
    """SQLite: the module for the whole process, from the environment alone."""
    pool_size: int = Field(default=5, ge=1, le=1000)
    """Postgres: the most connections of a store."""
    pooler: Literal["transaction"] | None = None
    """Postgres: whether a pooler hands out connections per transaction."""
    any_server: bool = False
    """Whether a server is used that is refused as unsuited or unknown."""
    statement_timeout: float | None = Field(default=60.0, gt=0, le=_MOST_SECONDS)
    """Postgres: seconds; none with a pooler."""
    lock_timeout: float | None = Field(default=10.0, gt=0, le=_MOST_SECONDS)
    """Postgres: seconds; none with a pooler."""
    busy_timeout: float = Field(default=5.0, ge=0, le=86_400)
    """SQLite: seconds that an attempt waits for the file's lock."""
    queue_timeout: float = Field(default=60.0, ge=0, le=86_400)
    """SQLite: seconds that a writer waits for the others of its process."""
    pool_timeout: float = Field(default=30.0, ge=0, le=86_400)
    """Postgres: seconds that a call waits for a connection; any awaited call: for a thread."""
    slow_statement: float | None = Field(default=None, gt=0, le=86_400)
    """Seconds from which a statement is logged as a warning."""
    retry_seconds: float | None = Field(default=None, ge=0, le=86_400)
    """No repetition of a busy unit begins later than this after the first failure."""
    limits: Limits = Limits()
    messaging_idle_timeout: Seconds | None = timedelta(minutes=30)
    """Seconds, or an ISO 8601 duration, after which a chat session is replaced."""
    agent_log_dir: Path | None = None
    """The folder of agent logs; ``agent-sessions`` in ``state_dir``."""
    session_types: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Words in a first prompt that name the type of an agent session."""
    run_log_root: Path | None = None
    """The folder whose ``sessions`` holds run logs and states of sessions; ``state_dir``."""
    mailbox_root: Path | None = None
    """The folder of mailboxes, also that of the original program; ``v2-sessions`` in ``state_dir``."""
    mailbox_mode: Literal["private", "group"] = "private"
    """``group`` is for agents that run under another user."""
    mailbox_timezone: str = "UTC"
    """The zone of recurring messages that name none."""
    line_sync: Literal["os", "end", "record"] = "end"
    """When a line file is brought to the disk: at its end, at each record, or when the system does it."""
    vector_memory: int = Field(default=256 * 2**20, ge=0)
    """SQLite: bytes of embeddings that a store holds in memory; 0 holds none."""

    #: The URL that was read from a file, and the file.
    _read: tuple[str, Path] | None = PrivateAttr(None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the usual sources, but without the environment variable ``SCHEMA``, which belongs to other programs.

        If an argument chooses the database, variables that choose a database are not read. A source without variables
        is left out, because querying pydantic's sources for each setting takes as long as opening the database.
        """
        hidden = {"schema"}
        if any(name in init_settings() for name in DATABASE):
            hidden |= {(PREFIX + name).lower() for name in DATABASE}
        if isinstance(env_settings, EnvSettingsSource):
            ours = tuple(name.lower() for name in (PREFIX, "state_dir", env_settings.env_prefix))
            env_settings.env_vars = {
                name: text
                for name, text in env_settings.env_vars.items()
                if name.lower().startswith(ours) and name not in hidden
            }
        return init_settings, *filter(_says_anything, (env_settings, dotenv_settings)), file_secret_settings

    @model_validator(mode="before")
    @classmethod
    def _behind_a_pooler(cls, given: Any) -> Any:
        """Give session timeouts no default if a transaction pooler is used, because the pooler would not keep them."""
        if isinstance(given, dict) and given.get("pooler") is not None:
            return {"statement_timeout": None, "lock_timeout": None, **given}
        return given

    @field_validator("*")
    @classmethod
    def _storable(cls, value: Any, info: ValidationInfo) -> Any:
        """Check texts and paths: no NUL, valid UTF-8. Errors in a URL are reported where it is parsed."""
        if isinstance(value, str | Path) and info.field_name != "url":
            text = str(value)
            if "\0" in text:
                raise ValueError("must not contain NUL")
            if info.field_name == "schema_name" and len(text.encode(errors="replace")) > _LONGEST_SCHEMA:
                raise ValueError(f"must not be longer than {_LONGEST_SCHEMA} bytes")
            if not isinstance(value, Path):
                text.encode()  # a UnicodeEncodeError is a ValueError
        return value

    @model_validator(mode="after")
    def _one_database(self) -> Self:
        if self.url is not None and self.url_file is not None:
            variables = " and ".join(PREFIX + name.upper() for name in DATABASE)
            raise ValueError(f"url and url_file are both given, as arguments or as {variables}; give one of them")
        return self

    def anchored(self) -> Self:
        """Return the same settings with absolute paths, so that a later ``os.chdir`` does not change their meaning."""
        paths = {
            name: value.absolute() for name in type(self).model_fields if isinstance(value := getattr(self, name), Path)
        }
        return self.model_copy(update=paths)

    def held_in(self, file: Path, url: str) -> Self:
        """Return the same settings with the URL that was read from a file."""
        found = self.model_copy(update={"url": url, "url_file": None})
        found._read = (url, file.absolute())
        return found

    def named_by(self) -> str:
        """Return shell words that pass this URL to a command without showing it; none if it was an argument.

        They name the URL's file or environment variable. If the variable is not set, the command is refused.
        """
        if self._read is not None and self._read[0] == self.url:
            return f"--url-file {shlex.quote(str(self._read[1]))}"
        held = (name for name, text in os.environ.items() if name.upper() == PREFIX + "URL" and text == self.url)
        return next((f'--url "${name}"' for name in held), "")

    @property
    def agent_sessions(self) -> Path:
        """Return the directory of the agent's event logs."""
        return self.agent_log_dir or self.state_dir / "agent-sessions"

    @property
    def run_logs(self) -> Path:
        """Return the directory whose ``sessions`` folder has the logs of runs and the states of sessions."""
        return self.run_log_root or self.state_dir

    @property
    def mailboxes(self) -> Path:
        """Return the directory of the mailboxes: a folder for each agent group, and in it one for each session."""
        return self.mailbox_root or self.state_dir / "v2-sessions"

    @property
    def line_directories(self) -> tuple[Path, Path]:
        """Return the directories of all line files: of agents, and of runs."""
        return self.agent_sessions, self.run_logs / "sessions"


def load_settings(base: Settings | None, **arguments: Any) -> Settings:
    """Return the effective settings: ``base`` or the environment, overridden by all arguments that are not None.

    If a file holds the URL, reads it once. Raises `InvalidValue` for the first wrong setting. Logs a warning for
    environment variables that begin with ``LASTLIGHT_STATE_`` and are not settings.
    """
    if base is None:
        _warn_of(tuple(name for name in os.environ if name.upper().startswith(PREFIX)))
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        if base is None:
            return _with_url(Settings(**given))
        return _with_url(base if not given else Settings(**{**_kept_settings(base, given), **given}))
    except SettingsError as error:  # a variable that must contain JSON
        raise InvalidValue("environment", str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidValue(where or DATABASE[-1], first["msg"].removeprefix("Value error, ")) from None


@cache
def _warn_of(variables: tuple[str, ...]) -> None:
    """Log a warning for each variable that is not a setting, only once per process."""
    known = [PREFIX + ("SCHEMA" if name == "schema_name" else name.upper()) for name in Settings.model_fields]
    for variable in variables:
        name, nested, _ = variable.upper().partition("__")
        if name not in known or (nested and name != PREFIX + "LIMITS"):
            close = difflib.get_close_matches(name, known, 1)
            meant = f": did you mean {close[0]}?" if close else ""
            _log.warning("the environment variable %s is no setting, and nothing reads it%s", variable, meant)


def stated_for_all(setting: str, value: str) -> bool:
    """True if the environment variable of this setting has this value. It applies to all stores of the process."""
    return any(name.upper() == PREFIX + setting and text == value for name, text in os.environ.items())


def _kept_settings(base: Settings, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``base`` that the arguments do not override."""
    replaced = DATABASE if any(name in given for name in DATABASE) else ()
    return {name: value for name, value in base.model_dump().items() if name not in replaced}


def _with_url(settings: Settings) -> Settings:
    """Return the same settings, with the URL read from the file that the settings name."""
    if settings.url_file is None:
        return settings
    return settings.held_in(settings.url_file, url_in(settings.url_file, "url_file"))
