"""Runs one command line and returns its exit code. Every exception becomes an exit code and a message."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NoReturn, TextIO, cast

import click
from click.shell_completion import shell_complete

from lastlight_state import __version__
from lastlight_state.cli import arguments, progress
from lastlight_state.cli.arguments import Flags
from lastlight_state.cli.exits import Terminated, failure_of
from lastlight_state.cli.output import Answer, Call, Output
from lastlight_state.lazy import load
from lastlight_state.redaction import Secrets

# From words to a command. A command's module is imported only when the command is called.

PROGRAM = "lastlight-state"
HELP = """The durable state of agent systems, for operators and deploy pipelines.

Without --url the database is what LASTLIGHT_STATE_URL or the file LASTLIGHT_STATE_URL_FILE says, else lastlight.db in
the state directory.
"""

#: The commands, each with its line in the program's help. A command's module has its name, with underscores.
COMMANDS = {
    "migrate": "Bring the schema to the newest revision, or to one before it.",
    "check": "Say whether the schema fits, and what migrate would do.",
    "current": "Print the revision that the database is at.",
    "history": "List the revisions that this version knows.",
    "stamp": "Write the version of a database whose schema is that of a revision.",
    "grants": "Print the SQL that a service's role needs.",
    "outputs": "Make the output tables of a program's models, or print the SQL for it.",
    "ls": "List sessions, runs, executions, questions, receipts and more.",
    "show": "Show one record with what belongs to it.",
    "timeline": "Print or follow everything that happens to a run.",
    "log": "Print or follow the agent's event log of a run, execution or session.",
    "inbox": "Show what waits for a person, and answer it.",
    "run": "Cancel, pause, resume or restart a run.",
    "retry": "Begin failed runs again: some by their ids, or all that a filter names.",
    "answer": "Answer a question of a run: approve, reject or reply.",
    "override": "Switch a workflow or cron on or off, or change a schedule.",
    "mailbox": "List, show, check, sweep and prune mailboxes of agents.",
    "run-log": "List, print, replay and check the logs of runs.",
    "session-state": "List, show, delete and reconstruct the states of sessions.",
    "repair": "Find what is damaged in line files and counters, and mend it.",
    "prune": "Remove what ended long ago, with a dry run and a receipt.",
    "reap": "End running sessions of conversations that show no sign of life.",
    "import": "Bring runs of other programs in, each whole or not at all, or load a bundle.",
    "export": "Write one run or session with all that belongs to it into a file.",
    "backup": "Write everything at one moment into a folder, or verify one.",
    "restore": "Make the database of a backup anew.",
    "copy": "Copy everything into an empty database, and prove that it arrived.",
    "redact": "Empty messages of conversations, and keep their rows and their order.",
    "erase": "Take one person out of conversations and chats.",
    "tenants": "List, make, migrate, export, erase or move the schemas that are tenants.",
    "checkpoint": "Bring the write-ahead log of a SQLite file into the file.",
    "vacuum": "Give back the space of deleted rows.",
    "reencrypt": "Seal contents with the present key of a codec.",
    "query": "Run one statement of SQL that reads.",
    "usage": "Say what executions have cost, by day, workflow, model, repository or person.",
    "receipts": "List what maintenance has done, or show one receipt.",
    "doctor": "Look for what is wrong, in the database and in the files beside it.",
    "stats": "Count and measure everything, database and files.",
    "ui": "Serve pages for a browser that show what is in the store.",
    "demo": "Run a real workflow here, with a crash on purpose, and print its story.",
}


#: Parser settings that all commands share.
CONTEXT: dict[str, Any] = {"show_default": True, "help_option_names": ["-h", "--help"]}


class AnsweredByFlag(Exception):
    """Raised when a flag, such as ``--version``, answers by itself without a command."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Commands(click.Group):
    """The group of all commands. Each command's module is imported only when the command is called."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        ctx.obj.command = cmd_name
        return command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table `COMMANDS`, so that printing help imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def parse(words: Sequence[str], call: Call) -> Answer:
    """Parse a command line, run its command and return the answer. Errors of the parser and the command are raised."""
    group = commands()
    words = _expand_help(words)
    try:
        with group.make_context(PROGRAM, list(words), obj=call, **CONTEXT) as context:
            return cast(Answer, group.invoke(context))
    except AnsweredByFlag as answered:
        return answered.answer
    except click.exceptions.Exit:  # help was printed
        return Answer()


def _expand_help(words: Sequence[str]) -> Sequence[str]:
    """Rewrite ``help COMMAND`` as ``COMMAND --help``."""
    return [*words[1:], "--help"] if list(words[:1]) == ["help"] else words


def commands() -> click.Group:
    """Return the parser of the whole program, with all commands."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_answer_version,
        help="Print the version.",
    )
    group = Commands(PROGRAM, help=HELP, no_args_is_help=False, params=[version, *arguments.options()])
    group.commands = dict.fromkeys(COMMANDS, group)  # only the names are used, to suggest a command for a mistyped one
    return group


def command(name: str) -> click.Command:
    """Return the parser of one command."""
    return cast(click.Command, load(f"{__package__}.commands.{name.replace('-', '_')}").run)


def _answer_version(_: click.Context, __: click.Parameter, value: Any) -> None:
    if value:
        raise AnsweredByFlag(Answer({"version": __version__}, lambda _screen: [f"{PROGRAM} {__version__}"]))


#: The environment variable by which a shell requests completions. Its value is the kind of request.
COMPLETION = "_LASTLIGHT_STATE_COMPLETE"


def main() -> NoReturn:
    """Run the command line of this process, and end the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if asked := os.environ.get(COMPLETION):
        sys.exit(complete(asked))
    sys.exit(run(sys.argv[1:]))


def complete(asked: str) -> int:
    """Print a completion script for the shell (``bash_source``), or completions of an unfinished command line."""
    flags, secrets = Flags(), Secrets()
    call = Call(flags, secrets, Output(flags, secrets, sys.stdout, sys.stderr))
    return shell_complete(commands(), {"obj": call, **CONTEXT}, PROGRAM, COMPLETION, asked)


def run(words: Sequence[str]) -> int:
    """Run one command line on this process's streams, and return its exit code. A process may call this repeatedly."""
    flags, secrets = Flags(json=_asks_for_json(words)), Secrets()
    output = Output(flags, secrets, _stream(sys.stdout), _stream(sys.stderr))
    call = Call(flags, secrets, output)
    with _hearing_sigterm(), _hearing_logs(output):
        with progress.show_progress(output.err, output.note, lambda: flags.quiet) as display:
            output.before_note = display.clear
            answer = _answer(words, call)
        try:
            return output.finish(call.command, answer)
        except BaseException as error:  # noqa: BLE001 a full disk, an impatient user
            return output.give_up(failure_of(error))


def _answer(words: Sequence[str], call: Call) -> Answer:
    printed = io.StringIO()
    try:
        if not call.flags.json:
            return parse(words, call)
        with redirect_stdout(printed):  # click prints help itself, but stdout must hold one JSON object
            answer = parse(words, call)
        return Answer({"help": printed.getvalue()}) if printed.getvalue() else answer
    except BrokenPipeError:  # data still unwritten is dropped at the end, by `hush`
        return Answer()
    except BaseException as error:  # noqa: BLE001 whatever it is, it becomes an exit code and a text
        for note in getattr(error, "__notes__", ()):  # what was left behind, and the command that continues
            call.output.note(note)
        return Answer(failure=failure_of(error, location=call.location))


def _asks_for_json(words: Sequence[str]) -> bool:
    """True if ``--json`` is given.

    This is checked before parsing, so that a parse error is written as JSON too.
    """
    before = list(words)[: list(words).index("--")] if "--" in words else words
    return "--json" in before


def _stream(stream: TextIO | None) -> TextIO:
    """Return the stream, or a discarded buffer if the stream was closed before the program started."""
    return stream if stream is not None else io.StringIO()


@contextmanager
def _hearing_sigterm() -> Iterator[None]:
    """Handle SIGTERM in the block: the first ends the command and its transaction, a second the process at once."""

    def end(*_: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Warnings(logging.Handler):
    """Log handler that passes the library's warnings to the command's output."""

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
