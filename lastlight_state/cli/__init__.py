"""The command line ``lastlight-state``, for operators and deploy pipelines: one module per command.

A command is a function ``run`` that calls the library and returns an `lastlight_state.cli.output.Answer`. A command has
no rules of its own. The parser, common flags, output, exit codes and signals are in the modules that all commands
share. Only the module of the requested command is imported.
"""

from lastlight_state.cli.program import main

__all__ = ["main"]
