"""packaging PT-21: what the pages tell to type exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from support.docs.pages import ROOT, blocks, pages
from support.each import with_each

from lastlight_state.cli import program as cli_program

BREAKS = {"|", "||", "&&", ";", "&"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of every ``bash`` block: where it stands, and its words."""
    for page in pages():
        for block in blocks(page, "bash"):
            for line in block.text.replace("\\\n", " ").splitlines():
                for words in split(line):
                    yield block.name, words


def split(line: str) -> Iterator[list[str]]:
    """The commands of a line, without comments and without the variables set before them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in BREAKS:
            if words:
                yield words
            words = []
        elif words or not re.match(r"[A-Z_]+=", word):
            words.append(word)


COMMANDS = sorted({(" ".join(words), where) for where, words in commands()})
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def of_program(program: str) -> list[tuple[str, str]]:
    return [(command, where) for command, where in COMMANDS if command.split()[0] == program]


@with_each(("command", "where"), of_program("make"))
def test_make_has_the_target(command: str, where: str) -> None:
    targets = [word for word in command.split()[1:] if "=" not in word and not word.startswith("-")]
    assert targets, where
    assert set(targets) <= TARGETS, where


@with_each(("command", "where"), of_program(cli_program.PROGRAM))
def test_the_command_line_has_the_command_and_its_flags(command: str, where: str) -> None:
    words = command.split()[1:]
    named = next((word for word in words if word in cli_program.COMMANDS), None)
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    known = {"--help", "--version"}
    if named is None:
        assert given & known, f"{where}: no command of ours in: {command}"
        return
    for parameter in cli_program.command(named).params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    assert given <= known, where


def test_readme_shows_the_two_commands_that_set_everything_up() -> None:
    """packaging PT-1."""
    shown = {command for command, where in of_program("make") if where.startswith("README.md")}
    assert {"make demo", "make test"} <= shown
