"""The command line ``lastlight-state``, for operators and deploy pipelines: one module per command, no rule of its own.

A command is a function ``run`` that asks the library and returns an `lastlight_state.cli.output.Answer`. What is the
same for all lives beside them: the parser, common flags, output, exit codes, signals. Only the module of the command
that is asked for is imported.
"""

from lastlight_state.cli.program import main

__all__ = ["main"]
