"""Makes the reference when the site is built: names, schema, commands, settings and errors, from the code.

A page says where its part goes by a line such as ``<!-- made: schema -->``. mkdocs calls `on_page_markdown` for each
page (``hooks`` in ``mkdocs.yml``).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import api
import click
import schema
from schema import markdown_table

from lastlight_state import errors
from lastlight_state.cli import arguments, program
from lastlight_state.settings import PREFIX, Limits, Settings

_MARK = re.compile(r"^<!-- made: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with the part that it names in place of the mark."""
    return _MARK.sub(lambda found: PARTS[found[1]](), markdown)


def commands() -> str:
    """Return a section for each command: its help and its flags."""
    return "\n".join("\n".join(_command(name)) + "\n" for name in program.COMMANDS)


def _command(name: str) -> Iterator[str]:
    command = program.command(name)
    common = {flag for option in arguments.options() for flag in option.opts}
    with click.Context(command, info_name=f"{program.PROGRAM} {name}") as context:
        usage = command.get_usage(context).removeprefix("Usage: ")
    yield f"## `{name}`"
    yield ""
    yield f"`{' '.join(usage.split())}`"
    yield ""
    yield _text(inspect.cleandoc(command.help or ""))
    flags = [one for one in command.params if isinstance(one, click.Option) and not common & {*one.opts}]
    if flags:
        yield ""
        yield from markdown_table(("flag", "meaning"), ((_flag(one), _text(_meaning(one))) for one in flags))


def _flag(option: click.Option) -> str:
    return ", ".join(f"`{flag}`" for flag in sorted({*option.opts, *option.secondary_opts}, key=len, reverse=True))


def _meaning(option: click.Option) -> str:
    given = option.default if isinstance(option.default, str | int | float) and not option.is_flag else None
    return f"{option.help or ''}{'' if given is None else f' ({given})'}"


def settings() -> str:
    """Return the table of settings, and that of limits."""
    names = ("setting", "variable", "type", "default", "meaning")
    limits = markdown_table(names[:-1], (row[:-1] for row in _rows(Limits, f"{PREFIX}LIMITS__")))
    return "\n".join([*markdown_table(names, _rows(Settings, PREFIX)), "", "## Limits", "", *limits])


def _rows(kind: type[Settings | Limits], prefix: str) -> Iterator[tuple[str, ...]]:
    types, meanings = inspect.get_annotations(kind), _meanings(kind)
    for name, field in kind.model_fields.items():
        if name != "limits":
            variable = "SCHEMA" if name == "schema_name" else name.upper()
            meaning = _text(meanings.get(name, ""))
            yield f"`{name}`", f"`{prefix}{variable}`", _text(str(types[name])), f"`{field.default}`", meaning


def _meanings(kind: type) -> dict[str, str]:
    """Return the texts that stand below the fields of a class."""
    [shown] = ast.parse(inspect.getsource(kind)).body
    found = {}
    for field, below in pairwise(shown.body if isinstance(shown, ast.ClassDef) else ()):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = str(below.value.value)
    return found


def error_classes() -> str:
    """Return the table of error classes, each behind the class that it is a kind of."""
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.StateError)]
    rows = (
        (f"`{one.__name__}`", f"`{one.__bases__[0].__name__}`", f"`{one.code}`", api.sentence(one)) for one in kinds
    )
    return "\n".join(markdown_table(("class", "kind of", "code", "what it says"), rows))


def _text(said: str) -> str:
    """Return the words of a help text, which are no Markdown."""
    return re.sub(r"([*|\[\]])", r"\\\1", said.replace("&", "&amp;").replace("<", "&lt;")).replace("``", "`")


PARTS: dict[str, Callable[[], str]] = {
    "names": api.page,
    "schema": schema.page,
    "commands": commands,
    "settings": settings,
    "errors": error_classes,
}
