"""The command line ``lastlight-state``, for operators and deploy pipelines: one module per command.

A command is a function ``run`` that calls the library and returns an `lastlight_state.cli.output.Answer`. It has no
rules of its own. What all commands share lies beside them: the parser, common flags, output, exit codes, signals. Only
the module of the requested command is imported.
"""

from lastlight_state.cli.program import main

__all__ = ["main"]
