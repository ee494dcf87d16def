"""Output of commands: the answer goes to stdout, everything else to stderr.

With ``--json`` stdout gets exactly one object, even for a failure. If the reader of stdout has closed the pipe, no
error is reported: the command ends silently, with the exit code it would have had.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TextIO

import click

from lastlight_state import codec
from lastlight_state.cli import arguments
from lastlight_state.cli.arguments import Flags
from lastlight_state.cli.exits import Failure
from lastlight_state.cli.screen import Screen
from lastlight_state.plain import plain, printable_json
from lastlight_state.redaction import Secrets

# The result of a command: data for programs, lines for people, and the failure if there is one.

Lines = Iterable[Any]


def _no_lines(_: Screen) -> Lines:
    return ()


@dataclass(frozen=True)
class Answer:
    """A command's result. ``data`` goes into the JSON object. ``lines`` returns text for people, if they read it.

    With a ``failure`` the data is still shown, and the reason goes to stderr.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    lines: Callable[[Screen], Lines] = _no_lines
    failure: Failure | None = None

    @property
    def exit_code(self) -> int:
        """Return the failure's exit code, or 0 without a failure."""
        return self.failure.exit_code if self.failure else 0


class Output:
    """The output streams of one call of the program."""

    def __init__(self, flags: Flags, secrets: Secrets, out: TextIO, err: TextIO) -> None:
        self._flags = flags
        self._secrets = secrets
        self._out = out
        self._err = err
        self._warnings: list[str] = []
        self._streamed = False
        #: Called before a line goes to stderr, to remove a progress bar.
        self.before_note: Callable[[], None] = lambda: None

    @property
    def err(self) -> TextIO:
        """Return stderr."""
        return self._err

    @cached_property
    def screen(self) -> Screen:
        """Return the screen for people, which is on stdout."""
        return self._screen(self._out)

    @cached_property
    def _notes(self) -> Screen:
        return self._screen(self._err)

    def note(self, text: str) -> None:
        """Print progress or a remark on stderr. With ``--quiet`` print nothing."""
        if not self._flags.quiet:
            self._to_stderr(text)

    def warn(self, text: str) -> None:
        """Print a remark on stderr. With ``--json`` put the remark into the JSON object instead."""
        self._warnings.append(self._secrets.redact(text))
        if not self._flags.json:
            self.note(text)

    def line(self, value: Any) -> None:
        """Write one object (``--json``) or one line of text at once, for commands that stream their results."""
        self._streamed = True
        if self._flags.json:
            self._out.write(_json(value))
        else:
            self.screen.write(value)
        self._out.flush()

    def raw_line(self, line: bytes) -> None:
        """Write one line byte for byte. On a terminal, write printable JSON of the same value."""
        self._streamed = True
        if self._out.isatty():
            self._out.write(printable_json(line.decode("utf-8", "backslashreplace")) + "\n")
            return
        self._out.flush()
        binary = getattr(self._out, "buffer", None)
        if binary is None:
            self._out.write(line.decode("utf-8", "backslashreplace") + "\n")
        else:
            binary.write(line + b"\n")
            binary.flush()

    def finish(self, command: str | None, answer: Answer) -> int:
        """Write the command's answer to stdout, and return the answer's exit code."""
        try:
            if self._flags.json:
                self._object(command, answer)
            else:
                self._text(answer)
            self._out.flush()
        except BrokenPipeError:
            hush(self._out)
        return answer.exit_code

    def give_up(self, failure: Failure) -> int:
        """Print on stderr why the answer could not be written, and return the exit code."""
        self._to_stderr(f"lastlight-state: {failure.message}")
        return failure.exit_code

    def _object(self, command: str | None, answer: Answer) -> None:
        if self._streamed and answer.failure is None:
            return
        found = {
            "ok": answer.failure is None,
            "command": command,
            "data": answer.data,
            "warnings": self._warnings,
            "error": self._error(answer.failure),
        }
        self._out.write(_json(found))

    def _text(self, answer: Answer) -> None:
        for line in answer.lines(self.screen):
            self.screen.write(line)
        self._out.flush()
        if answer.failure is not None:
            self._to_stderr(f"lastlight-state: {answer.failure.message}")

    def _error(self, failure: Failure | None) -> dict[str, Any] | None:
        if failure is None:
            return None
        return {
            "code": failure.code,
            "message": self._secrets.redact(failure.message),
            "details": {name: self._hide_secrets(plain(value)) for name, value in failure.details.items()},
        }

    def _hide_secrets(self, value: Any) -> Any:
        return self._secrets.redact(value) if isinstance(value, str) else value

    def _to_stderr(self, text: str) -> None:
        try:
            self.before_note()
            self._notes.write(self._secrets.redact(text))
            self._err.flush()
        except BrokenPipeError:
            hush(self._err)

    def _screen(self, stream: TextIO) -> Screen:
        return Screen(stream, colour=not self._flags.no_color, local=self._flags.local)


def hush(stream: TextIO) -> None:
    """Redirect a stream to the null device. Unwritten data then raises no error when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _json(value: Any) -> str:
    return printable_json(codec.dump_line(plain(value))[:-1].decode()) + "\n"


# One call of the program, and the decorator that makes a function a command.


class Call:
    """One call of the program: common flags, output and known passwords. It is passed first to a command's function.

    ``command`` and ``location`` are the requested command and the database, as far as they are known yet.
    """

    def __init__(self, flags: Flags, secrets: Secrets, output: Output) -> None:
        self.flags = flags
        self.secrets = secrets
        self.output = output
        self.command: str | None = None
        self.location: str | None = None


def command(name: str) -> Callable[[Callable[..., Answer]], click.Command]:
    """Decorate a function as a command of the program. The function's docstring becomes the help text.

    The common flags are added after its own.
    """

    def make_command(run: Callable[..., Answer]) -> click.Command:
        found = click.command(name)(click.pass_obj(run))
        found.params += arguments.options()
        return found

    return make_command
