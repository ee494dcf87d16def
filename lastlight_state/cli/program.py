"""Runs one command line and returns its exit code. Every exception becomes an exit code and a message."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO

from click.shell_completion import shell_complete

from lastlight_state.cli import parser
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call
from lastlight_state.cli.exits import Terminated, failure_of
from lastlight_state.cli.flags import Flags
from lastlight_state.cli.output import Output
from lastlight_state.redaction import Secrets

#: The variable by which a shell asks for completions; its value says what for.
COMPLETION = "_LASTLIGHT_STATE_COMPLETE"


def main() -> NoReturn:
    """Run the command line that the process was started with, and end it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if asked := os.environ.get(COMPLETION):
        sys.exit(complete(asked))
    sys.exit(run(sys.argv[1:]))


def complete(asked: str) -> int:
    """Print what a shell needs to complete a command line: ``bash_source``, or what a line so far can go on with."""
    flags, secrets = Flags(), Secrets()
    call = Call(flags, secrets, Output(flags, secrets, sys.stdout, sys.stderr))
    return shell_complete(parser.commands(), {"obj": call, **parser.CONTEXT}, parser.PROGRAM, COMPLETION, asked)


def run(words: Sequence[str]) -> int:
    """Run one command line on the streams of this process; its exit code. Can be called any number of times."""
    flags, secrets = Flags(json=_asks_for_json(words)), Secrets()
    output = Output(flags, secrets, _stream(sys.stdout), _stream(sys.stderr))
    call = Call(flags, secrets, output)
    with _hearing_sigterm(), _hearing_logs(output):
        answer = _answer(words, call)
        try:
            return output.finish(call.command, answer)
        except BaseException as error:  # noqa: BLE001 a full disk, an impatient user
            return output.give_up(failure_of(error))


def _answer(words: Sequence[str], call: Call) -> Answer:
    printed = io.StringIO()
    try:
        if not call.flags.json:
            return parser.parse(words, call)
        with redirect_stdout(printed):  # click prints help itself, and stdout must hold one JSON object
            answer = parser.parse(words, call)
        return Answer({"help": printed.getvalue()}) if printed.getvalue() else answer
    except BrokenPipeError:  # what was not written yet meets it again at the end, and vanishes there
        return Answer()
    except BaseException as error:  # noqa: BLE001 whatever it is, it becomes an exit code and a text
        for note in getattr(error, "__notes__", ()):  # what was left behind, and what goes on with it
            call.output.note(note)
        return Answer(failure=failure_of(error, location=call.location))


def _asks_for_json(words: Sequence[str]) -> bool:
    """Return whether JSON is asked for.

    It is looked up before parsing, so that a parse error is written as JSON too.
    """
    before = list(words)[: list(words).index("--")] if "--" in words else words
    return "--json" in before


def _stream(stream: TextIO | None) -> TextIO:
    """Return the stream; a buffer that is thrown away if it was closed before the program began."""
    return stream if stream is not None else io.StringIO()


@contextmanager
def _hearing_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command and its transaction, and a second one the process at once."""

    def end(*_: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Warnings(logging.Handler):
    """The library's warnings as warnings of the command."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.warn(record.getMessage())


@contextmanager
def _hearing_logs(output: Output) -> Iterator[None]:
    logger, handler = logging.getLogger("lastlight_state"), _Warnings(output)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
