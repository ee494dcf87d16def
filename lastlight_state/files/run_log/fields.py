"""Parts of the records in run logs and session states: objects that keep unknown fields."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db.rows.records import Record
from lastlight_state.files.run_log.paths import moment_of

JsonObject: TypeAlias = dict[str, Any]


def _moment(value: Any) -> Any:
    """Return a file's field as a time.

    A time object that a program passed is returned unchanged, for the writer to check.
    """
    return value if isinstance(value, datetime) else moment_of(value)


#: A time. If it cannot be parsed, it is read as None; its text stays in the record's bytes.
Time = Annotated[datetime | None, BeforeValidator(_moment)]
Text = Annotated[str, Strict()]
#: A number; beyond 64 bits it would not be read back as it was written.
Whole = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Messages = tuple[JsonObject, ...]

_AS_THEY_ARE = frozenset({str, int, float, bool, dict, type(None)})


class Open(Record):
    """The base class for records that keep undeclared fields."""

    model_config = ConfigDict(extra="allow")

    #: The fields in their order, and the fields that are written even if they were not given, such as the type.
    _order: ClassVar[tuple[str, ...]] = ()
    _constants: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls._order = tuple(cls.model_fields)
        cls._constants = frozenset(name for name, field in cls.model_fields.items() if field.default is not None)

    def to_json(self) -> JsonObject:
        """Return the record as a JSON object with exactly the fields that were given."""
        given, values = self.model_fields_set | self._constants, self.__dict__
        found = {name: _plain(values[name]) for name in self._order if name in given}
        for name, value in (self.model_extra or {}).items():
            found[name] = _plain(value)
        return found


class Program(Open):
    """A program by name and version."""

    name: Text
    version: Text


class Model(Open):
    """A model, as the run named it."""

    provider: Text | None = None
    name: Text | None = None
    reasoning: Text | None = None


class Prompts(Open):
    """The prompts of a run."""

    system: Text | None = None


class Tools(Open):
    """The tools of a run, and where they were defined."""

    definitions: tuple[Any, ...] | None = None
    source: Text | None = None


class Runtime(Open):
    """The environment in which a run works."""

    cwd: Text | None = None
    os: Text | None = None
    arch: Text | None = None
    version: Text | None = None


class RunInput(Open):
    """The input of a run: ``text``, or ``parts`` if a later version wrote it."""

    type: Text = "text"
    text: Text | None = None
    parts: tuple[Any, ...] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Check that the field that the type names is present. Types of later versions are accepted without a check."""
        if self.type in ("text", "parts") and getattr(self, self.type) is None:
            raise ValueError(f"{self.type} is missing")
        return self


class OutputRef(Open):
    """A reference to the place where a tool's whole output is stored.

    The program that stored the output states the sizes, which are never checked.
    """

    id: Text
    byte_size: Whole | None = None
    line_count: Whole | None = None


class LlmInput(Open):
    """The exact prompt of one invocation."""

    messages: Messages
    tools: tuple[Any, ...] | None = None
    tool_choice: Any = None
    model: Text | None = None


class LlmUsage(Open):
    """The token counts of one invocation."""

    model: Text
    input_tokens: Whole
    input_cached_tokens: Whole | None = None
    input_cache_creation_tokens: Whole | None = None
    input_image_tokens: Whole | None = None
    output_tokens: Whole
    total_tokens: Whole


class LlmOutput(Open):
    """The answer of the model."""

    messages: Messages
    usage: LlmUsage | None = None
    stop_reason: Text | None = None
    provider_meta: Any = None


class RunErrorInfo(Open):
    """An error by name and message."""

    name: Text
    message: Text
    stack: Text | None = None


def _plain(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Open):
        return value.to_json()
    if isinstance(value, datetime):
        return iso_text(aware_utc("time", value))
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
