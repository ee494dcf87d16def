"""Collections of garbage that tests can rely on."""

from __future__ import annotations

import gc
import threading
import time


def collect() -> None:
    """Collect all garbage, also while another thread is collecting: `gc.collect` then returns at once, with 0."""
    collected = threading.Event()
    collector = threading.get_ident()

    def note(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"], threading.get_ident()) == ("stop", 2, collector):
            collected.set()

    gc.callbacks.append(note)
    try:
        while not collected.is_set():
            gc.collect()
            time.sleep(0 if collected.is_set() else 0.001)
    finally:
        gc.callbacks.remove(note)


def collect_and_freeze() -> None:
    """Collect all garbage, and let later collections look only at what is made from now on: they are many in a test."""
    collect()
    gc.freeze()
