"""Tests in other frameworks' words: `make frameworks` runs them in an environment that has the frameworks."""

from __future__ import annotations

from importlib.util import find_spec

#: Elsewhere nothing here is collected.
collect_ignore_glob = [] if find_spec("langgraph") else ["test_*.py"]
