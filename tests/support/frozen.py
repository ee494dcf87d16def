"""What later versions keep, as ``make record`` writes it down: settings, commands, error codes, fields of records."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase
from support import hostile

import lastlight_state
from lastlight_state import StateStore, cli, errors
from lastlight_state.cli import exits, program
from lastlight_state.db.rows.records import Record
from lastlight_state.db.schema import envelopes
from lastlight_state.files.mailbox import models as tables
from lastlight_state.files.run_log import paths
from lastlight_state.integrations import conversing
from lastlight_state.keys import compose_key
from lastlight_state.maintenance.backup import restoring
from lastlight_state.maintenance.bundles import archive
from lastlight_state.settings import PREFIX, Limits, Settings

FOLDER = Path(__file__).parents[1] / "fixtures" / "frozen"
ADAPTERS = (
    ("a2a", "OwnedTasks"),
    ("a2a", "A2APushConfigs"),
    ("a2a_replicas", "A2ATaskEvents"),
    ("adk", "ADKSessions"),
    ("fasta2a", "FastA2AStorage"),
    ("langgraph", "LangGraphSaver"),
    ("langgraph_store", "LangGraphStore"),
    ("mcp", "MCPEventStore"),
    ("openai_agents", "OpenAIAgentsSession"),
    ("pydantic_ai", "PydanticAIConversations"),
)
NAMES = FOLDER.with_name("names.txt")
_EXITS = ("DONE", "NO", "USAGE", "BEHIND", "AHEAD", "INCOMPATIBLE", "UNREACHABLE", "STOPPED")


def settings() -> Iterator[str]:
    """Yield each variable with its type and default."""
    for kind, prefix in ((Settings, PREFIX), (Limits, f"{PREFIX}LIMITS__")):
        types = inspect.get_annotations(kind)
        for name, field in kind.model_fields.items():
            if name != "limits":
                variable = "SCHEMA" if name == "schema_name" else name.upper()
                yield f"{prefix}{variable}: {types[name]} = {field.default!r}"


def commands() -> Iterator[str]:
    """Yield the exit codes, and each command with its arguments and flags."""
    yield from (f"exit {int(getattr(exits, name))} {name}" for name in (*_EXITS, "INTERRUPTED", "TERMINATED"))
    for name in program.COMMANDS:
        for one in program.command(name).params:
            kind = "argument" if isinstance(one, click.Argument) else "flag"
            how = [word for word in ("required", "multiple") if getattr(one, word, False)]
            default = one.default if isinstance(one.default, bool | int | float | str) else None
            permitted = [f"of={','.join(map(str, one.type.choices))}"] if isinstance(one.type, click.Choice) else []
            words = [name, kind, *one.opts, *one.secondary_opts, one.type.name, *permitted, *how, f"nargs={one.nargs}"]
            yield " ".join(words) + f" default={default!r}"


def error_codes() -> Iterator[str]:
    """Yield each class of errors with the class above it and its code."""
    for name, kind in sorted(vars(errors).items()):
        if isinstance(kind, type) and issubclass(kind, errors.StateError):
            yield f"{name}({kind.__bases__[0].__name__}) {kind.code}"


def records() -> Iterator[str]:
    """Yield each field of the records that pages, commands, bundles and manifests of backups have as JSON."""
    for module in pkgutil.walk_packages(lastlight_state.__path__, "lastlight_state."):
        if module.name.rpartition(".")[2].endswith("records"):
            importlib.import_module(module.name)
    kinds, waiting = set[type[Record]](), [Record]
    while waiting:
        more = [one for one in waiting.pop().__subclasses__() if one.__module__.startswith("lastlight_state.")]
        waiting += more
        kinds |= set(more)
    public = {name.rpartition(".")[2] for name in NAMES.read_text("utf-8").split()} | {"DamagedRow"}
    found = {
        f"{kind.__module__.split('.')[1]}.{kind.__qualname__}.{field}: {_type_of(kind, field)}"
        for kind in kinds
        if kind.__qualname__ in public
        for field in kind.model_fields
    }
    for name, kind in _public_classes():
        fields = kind.__dataclass_fields__ if is_dataclass(kind) else getattr(kind, "_fields", ())
        found |= {f"{name}.{field}: {_type_of(kind, field)}" for field in fields if not field.startswith("_")}
    yield from sorted(found)


def _public_classes() -> Iterator[tuple[str, type]]:
    """Yield the classes among the public names, without those of adapters, which need their frameworks."""
    for name in NAMES.read_text("utf-8").split():
        package, _, word = name.rpartition(".")
        if not package.startswith("lastlight_state.integrations"):
            kind = getattr(importlib.import_module(package), word)
            if isinstance(kind, type):
                yield name, kind


def verbs() -> Iterator[str]:
    """Yield the public methods of repositories and of public classes, with the names of their parameters."""
    with TemporaryDirectory() as folder, StateStore.open(Path(folder) / "a.db", state_dir=folder) as store:
        found = {(path, method) for path, method in hostile.methods(store)}
    for name, kind in _public_classes():
        if issubclass(kind, BaseModel | BaseException | DeclarativeBase | tuple):
            continue
        for word, method in inspect.getmembers(kind, inspect.isfunction):
            if not word.startswith("_") and method.__module__.startswith("lastlight_state"):
                found.add((f"{name}.{word}", method))
    yield from sorted(f"{path}({', '.join(_parameters(method))})" for path, method in found)


def _parameters(method: Callable[..., object]) -> Iterator[str]:
    """Yield a word for each parameter: by name alone with ``*``, and with ``=`` if it may be left out."""
    marks = {"KEYWORD_ONLY": "*", "VAR_POSITIONAL": "*args ", "VAR_KEYWORD": "**"}
    for one in inspect.signature(method).parameters.values():
        alone = marks.get(one.kind.name, "")
        if one.name != "self":
            yield f"{alone}{one.name}{'' if one.default is one.empty else '='}"


def _type_of(kind: type, field: str) -> str:
    return next(str(known[field]) for one in kind.__mro__ if field in (known := inspect.get_annotations(one)))


def answers() -> Iterator[str]:
    """Yield the keys of the object below ``data`` that each module of commands prints with ``--json``."""
    folders = (Path(cli.__path__[0]) / name for name in ("commands", "views"))
    for file in sorted(file for folder in folders for file in folder.glob("*.py")):
        keys = {key for one in ast.walk(ast.parse(file.read_text("utf-8"))) for key in _answer_keys(one)}
        yield from (f"{file.parent.name}/{file.stem} {key}" for key in sorted(keys))


def _answer_keys(made: ast.AST) -> Iterator[str]:
    """Yield the keys of dicts that a function hands to `Answer`, at once or by the name ``data``, or returns."""
    match made:
        case ast.Call(func=ast.Name("Answer"), args=[ast.Dict() as found, *_]):
            pass
        case ast.Assign(targets=[ast.Name("data")], value=ast.Dict() as found):
            pass
        case ast.AnnAssign(target=ast.Name("data"), value=ast.Dict() as found):
            pass
        case ast.AugAssign(target=ast.Name("data"), value=ast.Dict() as found):
            pass
        case ast.Return(value=ast.Dict() as found) | ast.ListComp(elt=ast.Dict() as found):
            pass
        case ast.Subscript(value=ast.Name("data"), slice=ast.Constant(str(key)), ctx=ast.Store()):
            yield key
            return
        case _:
            return
    texts = [str(key.value) for key in found.keys if isinstance(key, ast.Constant)]
    yield from (text for text in texts if text.isidentifier())


def formats() -> Iterator[str]:
    """Yield the numbers of formats, and envelopes of sealed values."""
    yield f"backup {restoring._FORMAT}"
    yield f"bundle {archive.FORMAT}"
    yield f"envelope magic {envelopes.MAGIC!r} alone {envelopes.ALONE!r} bound {envelopes.BOUND!r}"
    yield f"envelope text {envelopes.TEXT!r} no key {envelopes.NO_KEY!r}"
    yield f"run log {paths.VERSION}"
    for side, metadata in (("host", tables.INBOUND), ("agent", tables.OUTBOUND)):
        for table in metadata.sorted_tables:
            yield from (f"mailbox {side} {table.name}.{column.name} {column.type}" for column in table.columns)
    yield f"mailbox layout {tables.LAYOUT}"
    yield f"backup folders {restoring.LINES} {restoring.MAILBOXES}"
    yield f"envelope of bytes {envelopes.bytes_envelope(envelopes.BOUND, 'key', b'sealed').hex()}"


def keys() -> Iterator[str]:
    """Yield the scopes of adapters, the words behind them in keys, and how parts become a key."""
    for module, adapter in ADAPTERS:
        kind = getattr(importlib.import_module(f"lastlight_state.integrations.{module}"), adapter)
        yield f"{adapter} scope {inspect.signature(kind).parameters['scope'].default!r}"
    words = {name: word for name, word in vars(conversing).items() if name.isupper() and isinstance(word, str)}
    yield from (f"word {name} {word!r}" for name, word in words.items() if not name.startswith("_"))
    yield f"key {compose_key('a/b', '', 'c%d', 'é')!r}"


#: Each recording, and the promise that a change of it breaks.
PROMISES: dict[str, tuple[Callable[[], Iterator[str]], str]] = {
    "settings": (settings, "a setting keeps its variable, type and default"),
    "commands": (commands, "a command keeps its arguments, flags and exit codes"),
    "errors": (error_codes, "an error keeps its class and code"),
    "verbs": (verbs, "a public method keeps its name and the names of its parameters"),
    "answers": (answers, "the JSON of a command keeps its keys"),
    "records": (records, "the JSON of a record keeps its fields and their types"),
    "keys": (keys, "an adapter finds what earlier versions stored"),
    "formats": (formats, "every version reads the backups, bundles and sealed values of earlier ones"),
}


def text_of(name: str) -> str:
    """Return the text of a recording."""
    return "".join(f"{line}\n" for line in PROMISES[name][0]())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for named in PROMISES:
        (FOLDER / f"{named}.txt").write_text(text_of(named), encoding="utf-8")
