"""Draws changes at random places of the library: nobody names them beforehand.

The kinds are those of the hand-written changes. A seed draws the same changes from the same code.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path

from mutants.change import Change
from mutants.edits import KINDS, Edit, Source

ROOT = Path(__file__).resolve().parents[2]
#: What helps to show or to test the library, and what only names things.
LEFT_OUT = ("testing/", "cli/views/", "integrations/", "reprs.py")
#: Tests of a package, where they are more than the folder of its name.
TESTS = {
    "backends": "backends test_store.py test_store_busy.py",
    "db": "db test_store.py test_hostile_arguments.py",
    "jsonl": "files/jsonl files/agent_log",
    "receipts": "receipts db",
    "lastlight_state": "test_store.py test_store_busy.py test_starting.py test_clock.py test_settings.py aio",
}
#: Tests of a kind of change in whatever package.
OF_KIND = {
    "bounds": "test_defaults.py",
    "defaults": "test_defaults.py test_locks.py",
    "locks": "test_turns.py test_locks.py",
    "cleanups": "test_to_disk.py maintenance/test_lasting.py architecture/test_told.py",
    "handlers": "architecture/test_told.py",
}
#: Files of which the recorded schema is made.
SCHEMA = ("guards", "models", "indexes", "tables")


def drawn(count: int, seed: int) -> list[Change]:
    """About ``count`` changes, in random order: a package's share goes by its size, its kinds have the same chance."""
    chance = random.Random(seed)
    places, lines = _places()
    changes: dict[tuple[str, str], Change] = {}
    shares = {package: max(1, round(count * lines[package] / sum(lines.values()))) for package in sorted(places)}
    for package, share in shares.items():
        made = 0
        while made < share:
            kind = chance.choice(sorted(places[package]))
            file, edit = chance.choice(places[package][kind])
            change = _change(f"D{seed}.{len(changes) + 1:02}", kind, file, edit)
            if change is not None and (change.file, change.old) not in changes:
                changes[change.file, change.old] = change
                made += 1
    return chance.sample(list(changes.values()), len(changes))


def of_kind(kind: str) -> list[Change]:
    """All changes of a kind, in an order that is always the same and mixes the packages."""
    places, _ = _places()
    edits = [place for package in sorted(places) for place in places[package][kind]]
    made = (_change(f"{kind[0].upper()}{at:04}", kind, file, edit) for at, (file, edit) in enumerate(edits))
    changes = list({(one.file, one.old, one.new): one for one in made if one is not None}.values())
    random.Random(kind).shuffle(changes)
    return changes


def words(path: str) -> set[str]:
    """The words of a path: files whose paths share many belong together."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", path)}


def _places() -> tuple[dict[str, dict[str, list[tuple[Path, Edit]]]], dict[str, int]]:
    places: dict[str, dict[str, list[tuple[Path, Edit]]]] = defaultdict(lambda: defaultdict(list))
    lines: dict[str, int] = defaultdict(int)
    library = ROOT / "lastlight_state"
    for file in sorted(library.rglob("*.py")):
        inside = file.relative_to(library).as_posix()
        if inside.startswith(LEFT_OUT):
            continue
        source = Source(file)
        package = inside.split("/")[0] if "/" in inside else "lastlight_state"
        lines[package] += source.text.count(b"\n")
        for node in source.nodes():
            for kind in KINDS:
                for edit in kind(source, node):
                    places[package][kind.__name__].append((file, edit))
    return places, lines


def _change(name: str, kind: str, file: Path, edit: Edit) -> Change | None:
    """The edit as whole lines, with as many lines before them as make the place unique. None if it does not compile."""
    text = file.read_bytes()
    changed = text[: edit.start] + edit.new.encode() + text[edit.end :]
    try:
        compile(changed, file, "exec")
    except SyntaxError:
        return None
    first = text.rfind(b"\n", 0, edit.start) + 1
    last = text.find(b"\n", edit.end) + 1
    while text.count(text[first:last]) > 1:
        first = text.rfind(b"\n", 0, first - 1) + 1
    old, new = text[first:last], text[first : edit.start] + edit.new.encode() + text[edit.end : last]
    inside = file.relative_to(ROOT).as_posix()
    return Change(name, inside, old.decode(), new.decode(), _tests(inside, kind), "each", kind=kind)


def _tests(file: str, kind: str) -> str:
    parts = tuple(part for part in Path(file).parts if part != "files")
    package = parts[1] if len(parts) > 2 else parts[0]
    folders = TESTS.get(package, f"files/{package}" if "files" in Path(file).parts else package)
    if (
        package == "workflows"
        and (ROOT / "tests" / Path(*parts[1:-1])).is_dir()
        and len(parts) > 3
        and parts[2] != "shared"
    ):
        folders = f"{Path(*parts[1:-1])} workflows/test_lost_races.py workflows/test_second_looks.py"
    if package == "aio" and (ROOT / "tests" / Path(file).stem).is_dir():
        folders = f"aio {Path(file).stem}"
    if (ROOT / "tests" / f"test_{Path(file).stem}.py").is_file():
        folders = f"test_{Path(file).stem}.py {folders}"
    if Path(file).stem in SCHEMA:
        folders += " db/test_guards.py migrations/test_snapshot.py"
    return f"{folders} {OF_KIND.get(kind, '')}"
