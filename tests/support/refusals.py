"""What each argument of each method of a store refuses by its own check, beside values of another type.

``make record`` writes it down again, for a check that is changed on purpose.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.hostile import methods, taken
from support.hostile_rows import KNOWN, Undone, fill, undo

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, PayloadTooLarge, StateError

PAGE = Path(__file__).parents[1] / "fixtures" / "refusals.txt"
#: Values by the word for them, and by what stands in the type of an argument that may have them.
WRONG: dict[str, dict[str, Any]] = {
    "str": {"blank": " ", "long": "x" * 5_000},
    "Literal": {"unknown": "no-such-word"},
    "int": {"negative": -1, "zero": 0, "large": 2**40},
    "float": {"negative": -1.0, "endless": float("inf")},
    "Sequence": {"empty": [], "many": [f"x{number}" for number in range(2_000)]},
}


def found(store: StateStore, known: Mapping[str, Any]) -> dict[str, str]:
    """What each argument refuses, by the path of the method and its name; nothing, too."""
    return dict(sorted(_all(store, known)))


def recorded() -> dict[str, str]:
    """As it was written down."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {name: words for name, _, words in (line.partition(" = ") for line in lines)}


def _all(store: StateStore, known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, method in methods(store):
        kinds, plain = taken(method, known)
        for name, kind in kinds.items():
            if name == "page_token" or path.startswith("maintenance."):
                continue
            tried = {word: value for part, wrong in WRONG.items() if part in str(kind) for word, value in wrong.items()}
            refused = (word for word, value in tried.items() if _refuses(store, path, {**plain, name: value}, name))
            if tried:
                yield f"{path}({name})", " ".join(refused) or "nothing"


def _refuses(store: StateStore, path: str, given: dict[str, Any], name: str) -> bool:
    """Whether a call refuses an argument by its name. It is undone."""
    try:
        with store.transaction() as tx:
            owner: Any = tx
            for part in path.split("."):
                owner = getattr(owner, part)
            made = owner(**given)
            if inspect.isgenerator(made):
                next(made, None)
            undo()
    except (InvalidValue, PayloadTooLarge) as error:
        return str(error).startswith(name)
    except (StateError, Undone):
        pass
    return False


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder, StateStore.open(Path(folder) / "state.db") as store:
        fill(store)
        lines = [f"{name} = {words}\n" for name, words in found(store, KNOWN).items()]
    PAGE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
