"""Modules of tests, rewritten for pytest by all processes of a run together: each does a share, and reads the others'.

Alone in a new checkout each process would rewrite all of them, in the same order and at the same time as the others,
and collect the constants for Hypothesis from all modules: that is most of the time before the first test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

LIBRARY = Path(__file__).parents[2] / "lastlight_state"
#: So many modules of tests import most of the library.
MANY = 100


def rewrite_share(config: pytest.Config) -> None:
    """Write the share of this process to the caches; nothing where there is one process, or where none may be kept."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    try:
        from _pytest.assertion import rewrite
        from hypothesis.internal.constants_ast import constants_from_module

        state = config.stash[rewrite.assertstate_key]
        write, read, kept, tail = rewrite._write_pyc, rewrite._read_pyc, rewrite.get_cache_dir, rewrite.PYC_TAIL
        rewritten = rewrite._rewrite_test
    except (ImportError, AttributeError, KeyError):  # another version: each process rewrites them for itself
        return
    share = slice(int(worker["workerid"].removeprefix("gw")), None, worker["workercount"])
    named = sorted({config.invocation_params.dir / argument.partition("::")[0] for argument in config.args})
    tests = [test for place in named for test in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]
    for file in tests[share]:
        cached = kept(file) / f"{file.stem}{tail}"
        if read(file, cached) is None:
            digest, code = rewritten(file, config)
            cached.parent.mkdir(parents=True, exist_ok=True)
            write(state, code, digest, cached)
    library = sorted(LIBRARY.rglob("*.py")) if len(tests) >= MANY else []
    for file in [*tests, *library][share]:
        module = ModuleType(file.stem)
        module.__file__ = str(file)
        constants_from_module(module)
