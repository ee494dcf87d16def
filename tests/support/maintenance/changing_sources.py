"""Sources of one kind that change at random, and what must be true of the store after each import of one.

The model is: what a source has comes in, in its order and once; what was removed here stays away until it is asked for,
what was added here stays, and nothing goes.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.maintenance.everything import everything
from support.maintenance.living_source import APPEND
from support.maintenance.named_sources import SOURCES
from support.maintenance.run_folders import BEGIN

from lastlight_state.errors import StateError
from lastlight_state.testing import Database

#: The most items of a source, and what says them here.
_MOST, _HERE = 8, ("here", "hello")


@dataclass(frozen=True)
class _Source:
    root: Path
    path: Path
    said: str
    items: int

    def at(self, root: Path) -> _Source:
        """The same at another place."""
        return replace(self, root=root, path=root / self.path.relative_to(self.root))

    @property
    def wanted(self) -> list[str]:
        """All that it says."""
        return [f"{self.said} {number}" for number in range(self.items)]


class ChangingSources:
    """Sources of a kind below a folder, changed by the numbers that a seed gives."""

    def __init__(self, database: Database, folder: Path, kind: str, seed: int) -> None:
        self._database, self._store = database, database.open()
        self._folder, self._kind, self._named = folder, kind, SOURCES[kind]
        self._random, self._count = random.Random(f"{kind} {seed}"), 0
        self._removed: set[str] = set()
        self._is_ordered = True
        self._backups: dict[Path, tuple[Path, _Source]] = {}
        self.told: list[str] = []
        self._sources = [self._made("said", self._random.randint(1, 3))]

    def change(self) -> None:
        """Do one thing to a source or to the store, and import a source."""
        deeds: list[Callable[[_Source], None]] = [
            *(self._append, self._append, self._copy, self._move, self._begin_anew, self._back_up, self._restore),
            *(self._copy_over, self._another, self._copy_beside, self._go_on, self._remove, self._pop, self._revive),
        ]
        deed, source = self._random.choice(deeds), self._random.choice(self._sources)
        self.told.append(f"{deed.__name__} {source.path} {source.said} {source.items}")
        deed(source)
        self._bring_in(self._random.choice(self._sources))

    def come_to_rest(self) -> None:
        """Import all twice; a third time nothing is written, and nothing that was removed is back."""
        for source in [*self._sources, *self._sources]:
            self._bring_in(source)
        before = everything(self._database, self._store)
        for source in self._sources:
            assert set(self._bring_in(source)) <= {"unchanged", "pruned", "failed", "ignored"}, self.told
        assert everything(self._database, self._store) == before, self.told

    def _bring_in(self, source: _Source, *, revive: bool = False) -> dict[str, int]:
        before, imports = self._here(), self._store.maintenance.imports
        plan, done = (call(source.path, revive=revive) for call in (imports.plan, imports.run))
        here = self._here()
        self.told.append(f"import {source.path}, {done.units}, {[one.reason for one in done.failures]}: {here}")
        assert plan.units == done.units or self._has_copies(source), self.told
        said = [one for one in here if one not in _HERE]
        assert len(set(said)) == len(said), self.told
        assert set(before) <= set(here), self.told
        assert {*here} - {*before} <= {*source.wanted}, self.told
        assert revive or self._removed.isdisjoint(here), self.told
        of_it = [one for one in said if one in source.wanted]
        assert not self._is_ordered or of_it == sorted(of_it, key=source.wanted.index), self.told
        return dict(done.units)

    def _here(self) -> list[str]:
        return self._named.read(self._store, None)

    def _made(self, said: str, items: int) -> _Source:
        root = self._place()
        root.mkdir()
        return _Source(root, self._named.write(root, said, items), said, items)

    def _place(self) -> Path:
        self._count += 1
        return self._folder / f"place-{self._count}"

    def _put(self, old: _Source, new: _Source) -> None:
        self._sources[self._sources.index(old)] = new

    def _append(self, source: _Source) -> None:
        if self._kind in APPEND and source.said == "said" and source.items < _MOST:
            APPEND[self._kind](source.root, source.items)
            for manifest in source.root.glob("runs/s/run.json"):
                os.utime(manifest, (BEGIN + 100 + source.items,) * 2)
            self._put(source, replace(source, items=source.items + 1))

    def _copy(self, source: _Source) -> None:
        self._sources.append(source.at(Path(shutil.copytree(source.root, self._place()))))

    def _move(self, source: _Source) -> None:
        self._put(source, source.at(source.root.rename(self._place())))

    def _begin_anew(self, source: _Source) -> None:
        shutil.rmtree(source.root)
        source.root.mkdir()
        items = self._random.randint(1, 4)
        self._named.write(source.root, "first", items)
        self._put(source, replace(source, said="first", items=items))

    def _back_up(self, source: _Source) -> None:
        self._backups[source.root] = Path(shutil.copytree(source.root, self._place())), source

    def _restore(self, source: _Source) -> None:
        if source.root in self._backups:
            kept, before = self._backups[source.root]
            shutil.rmtree(source.root)
            shutil.copytree(kept, source.root)
            self._put(source, before)

    def _copy_over(self, source: _Source) -> None:
        other = self._random.choice(self._sources)
        if other is not source:
            shutil.copytree(other.root, source.root, dirs_exist_ok=True, copy_function=shutil.copyfile)
            self._put(source, other.at(source.root))

    def _another(self, _: _Source) -> None:
        if all(one.said != "shop" for one in self._sources):
            self._sources.append(self._made("shop", self._random.randint(1, 3)))

    def _copy_beside(self, source: _Source) -> None:
        run, copy = source.root / "runs" / "s", source.root / "runs" / "s.bak"
        if run.is_dir() and not copy.exists():
            shutil.copytree(run, copy, copy_function=self._random.choice([shutil.copy, shutil.copy2]))

    def _has_copies(self, source: _Source) -> bool:
        """True if a run has a copy beside: a plan takes two that are new and differ for two sessions."""
        return (source.root / "runs" / "s.bak").exists()

    def _go_on(self, _: _Source) -> None:
        if self._here():
            self._quietly(self._named.go_on)

    def _remove(self, _: _Source) -> None:
        if self._here():
            self._quietly(self._named.remove)

    def _pop(self, _: _Source) -> None:
        if self._kind in ("lionagi-db", "lionagi-runs") and self._here():
            one = self._store.conversations.branches.list(session_id="s").items[0]
            self._quietly(lambda store: store.conversations.branches.pop(one.id))

    def _quietly(self, deed: Callable[[Any], object]) -> None:
        """Do it, unless the store refuses it or there are several files."""
        before = self._here()
        try:
            deed(self._store)
        except (StateError, ValueError) as error:
            self.told.append(repr(error))
        self._removed |= set(before) - {*self._here(), *_HERE}

    def _revive(self, source: _Source) -> None:
        self._is_ordered = self._is_ordered and self._kind != "lionagi-teams"  # an inbox gets it at its end
        self._bring_in(source, revive=True)
        self._removed -= set(self._here())
