"""``demo``: runs a workflow on a database, and kills a worker process.

An agent's recorded events (``stream.jsonl``) are replayed through the library, as a service would send them. A run is
created, worker processes execute its phases, and it waits at a gate. One worker is killed in the middle of a phase,
another one resumes from the stored data, and the run ends. The library has no special code for the demo. A worker gets
only the run's id, and reads from the store what to do next.
"""

from lastlight_state.cli.commands.demo.command import run

__all__ = ["run"]
