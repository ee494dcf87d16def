import os
import subprocess
import sys
import threading
from pathlib import Path

from lastlight_state.metrics import MOST_LABELS, Metrics

FIXTURES = Path(__file__).parent / "fixtures"
COUNTING = """
import sys
from lastlight_state.metrics import Metrics

metrics = Metrics()
metrics.count("retries")
metrics.count("retries", 2)
metrics.count("failed_hooks", label="nightly")
print(metrics.retries, metrics.failed_hooks)
"""


def counted(*folders: Path, before: str = "") -> list[str]:
    """What a process says that counts, with these folders before the others on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-c", before + COUNTING]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


def test_counters_start_at_nothing_and_only_grow() -> None:
    """backends B-54."""
    metrics = Metrics()
    assert metrics.retries == 0
    metrics.count("retries")
    metrics.count("retries", 3)
    assert metrics.retries == 4


def test_no_count_of_any_thread_is_lost() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2_000):
            metrics.count("retries")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.retries == 16_000


def test_a_count_waits_for_one_that_is_being_made() -> None:
    """backends B-54: what another thread adds between the reading and the writing of a number is not lost."""
    metrics = Metrics()
    other = threading.Thread(target=metrics.count, args=("retries",))

    class Slow(int):
        def __radd__(self, before: int) -> int:
            other.start()
            other.join(0.05)  # until it is done, unless it waits
            return before + int(self)

    metrics.count("retries", Slow(2))
    other.join(30)
    assert metrics.retries == 3


def test_opentelemetry_is_told_the_same_numbers() -> None:
    """backends B-54."""
    assert counted(FIXTURES / "fake_opentelemetry") == [
        "lastlight_state.retries 1",
        "lastlight_state.retries 2",
        "lastlight_state.failed_hooks 1 ('label', 'nightly')",
        "3 1",
    ]


def test_without_opentelemetry_counting_goes_on() -> None:
    """backends B-54: when that library is present."""
    assert counted(before="import sys; sys.modules['opentelemetry'] = None\n") == ["3 1"]


def test_another_library_of_its_family_is_not_taken_for_it() -> None:
    """Many libraries share the namespace ``opentelemetry``."""
    assert counted(before="import sys; sys.modules['opentelemetry.metrics'] = None\n") == ["3 1"]


def test_labels_are_counted_apart_up_to_a_bound_and_those_that_are_known_go_on() -> None:
    """backends B-50: a label made from data does not fill the memory."""
    metrics = Metrics()
    for number in range(MOST_LABELS + 5):
        metrics.count("retries", label=f"l{number}")
    metrics.count("retries", 2, label="l0")
    assert metrics.of("l0") == {"retries": 3}
    assert metrics.of(f"l{MOST_LABELS - 1}") == {"retries": 1}
    assert metrics.of(f"l{MOST_LABELS}") == metrics.of("never") == {}
    assert metrics.retries == MOST_LABELS + 7
