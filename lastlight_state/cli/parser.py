"""From words to a command. Each command's module is imported when its command is asked for, not before."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import click

from lastlight_state import __version__
from lastlight_state.cli import flags
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call

PROGRAM = "lastlight-state"
HELP = """The durable state of agent systems, for operators and deploy pipelines.

Without --url the database is what LASTLIGHT_STATE_URL or the file LASTLIGHT_STATE_URL_FILE says, else lastlight.db in
the state directory.
"""

#: Each command and the line that help shows of it. Its module has its name, with underscores.
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
    "checkpoint": "Bring the write-ahead log of a SQLite file into the file.",
    "vacuum": "Give back the space of deleted rows.",
    "query": "Run one statement of SQL that reads.",
    "receipts": "List what maintenance has done, or show one receipt.",
    "doctor": "Look for what is wrong, in the database and in the files beside it.",
    "stats": "Count and measure everything, database and files.",
    "ui": "Serve pages for a browser that show what is in the store.",
    "demo": "Run a real workflow here, with a crash on purpose, and print its story.",
}


#: What all commands have in common, for the parser.
CONTEXT: dict[str, Any] = {"show_default": True, "help_option_names": ["-h", "--help"]}


class Answered(Exception):
    """A flag has answered by itself, without a command."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Commands(click.Group):
    """The commands, loaded one by one."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        ctx.obj.command = cmd_name
        return command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table above, so that help imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def parse(words: Sequence[str], call: Call) -> Answer:
    """Return the answer of the command that the words name. Raises what the parser and the command raise."""
    group = commands()
    words = _helped(words)
    try:
        with group.make_context(PROGRAM, list(words), obj=call, **CONTEXT) as context:
            return cast(Answer, group.invoke(context))
    except Answered as answered:
        return answered.answer
    except click.exceptions.Exit:  # help was printed
        return Answer()


def _helped(words: Sequence[str]) -> Sequence[str]:
    """Return ``help COMMAND`` as ``COMMAND --help``."""
    return [*words[1:], "--help"] if list(words[:1]) == ["help"] else words


def commands() -> click.Group:
    """Return the parser of the whole program."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_answer_version,
        help="Print the version.",
    )
    group = Commands(PROGRAM, help=HELP, no_args_is_help=False, params=[version, *flags.options()])
    group.commands = dict.fromkeys(COMMANDS, group)  # only their names are used: a mistyped one is compared with them
    return group


def command(name: str) -> click.Command:
    """Return the parser of one command."""
    return cast(click.Command, import_module(f"{__package__}.commands.{name.replace('-', '_')}").run)


def _answer_version(_: click.Context, __: click.Parameter, value: Any) -> None:
    if value:
        raise Answered(Answer({"version": __version__}, lambda _screen: [f"{PROGRAM} {__version__}"]))
