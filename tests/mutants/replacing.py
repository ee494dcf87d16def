"""Replaces the code of functions in a process that has imported the library, as if the file had another text."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import zip_longest
from pkgutil import walk_packages
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

#: The flag of a function's code; that of a module or a class has not got it.
OF_A_FUNCTION = 1


class Place(NamedTuple):
    """Which function of which file a code is of."""

    file: str
    name: str
    line: int

    @classmethod
    def of(cls, code: CodeType) -> Place:
        """Where the code stands."""
        return cls(code.co_filename, code.co_qualname, code.co_firstlineno)


class Elsewhere(Exception):
    """The change is not in a function's body alone: what is made at the import would have to be made again."""


def replacements(file: str, text: str, changed: str) -> dict[Place, CodeType]:
    """The new code of each function that is not the same in both texts. Raises `Elsewhere`."""
    return dict(_differing(compile(text, file, "exec"), compile(changed, file, "exec")))


def functions(package: ModuleType) -> dict[Place, list[FunctionType]]:
    """All functions of the package's modules, also of those that are imported only when they are needed."""
    folder = package.__path__[0]
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    gc.unfreeze()
    found = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(folder):
            found[Place.of(one.__code__)].append(one)
    return found


def replace(replaced: Iterable[tuple[FunctionType, CodeType]]) -> None:
    """Give each function its new code."""
    for function, code in replaced:
        function.__code__ = code


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[Place, CodeType]]:
    if _own(old) != _own(new):
        raise Elsewhere
    for before, after in zip_longest(_inner(old), _inner(new)):
        if _whole(before) == _whole(after):
            continue
        if before.co_flags & OF_A_FUNCTION:
            yield Place.of(before), after
        else:
            yield from _differing(before, after)


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """What the code does, without its inner functions and without the lines where it stands."""
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    names = code.co_names, code.co_varnames, code.co_freevars
    return code.co_name, code.co_flags, code.co_code, code.co_exceptiontable, names, constants


def _whole(code: CodeType) -> tuple[object, ...]:
    return *_own(code), *map(_whole, _inner(code))
