"""``demo``: a real workflow on a real database, with a worker that is really killed.

An agent's recorded events (``stream.jsonl``) are replayed through the library as a service would feed them: a run is
dispatched, its phases are executed by worker processes, it waits at a gate, one worker is killed in the middle of a
phase, another one resumes from what is stored, and the run ends. Nothing here is known to the library, and a worker
knows nothing but the run's id: what to do next is read from the store.
"""

from lastlight_state.cli.commands.demo.command import run

__all__ = ["run"]
