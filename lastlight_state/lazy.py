"""Modules and attributes that are loaded at their first use.

A package's ``__init__`` lists the modules of its names, and a `Face` lists the classes of its parts. Importing either
of them loads none of these modules.

Only one thread imports at a time. If two threads import a package's modules in different orders, CPython may give one
of them a half-initialised module. The main thread never imports, because signal handlers raise there: an exception
inside CPython's import machinery leaves a lock held, and all other threads would wait for it for ever.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, Generic, Self, TypeVar, cast, overload

T = TypeVar("T")

#: The lock of the importing thread. The main thread never holds it.
_turn_lock = threading.RLock()


def load(name: str) -> ModuleType:
    """Return the module of this dotted path, importing it if needed."""
    found = sys.modules.get(name)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    return run_imports(partial(import_module, name))


def run_imports(call: Callable[[], T]) -> T:
    """Return the result of ``call``, which may import modules.

    If called in the main thread, another thread makes the call, and the main thread waits. A signal handler's exception
    ends the wait, but not the call. Inside an import, the call is made at once, because this thread holds locks that
    another thread may need.
    """
    if _is_importing():
        return call()
    if threading.get_ident() == threading.main_thread().ident:
        return _made_apart(call)
    with _turn_lock:
        return call()


def _is_importing() -> bool:
    """True if this thread is importing a module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename == "<frozen importlib._bootstrap>" and code.co_name != "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


def _made_apart(call: Callable[[], T]) -> T:
    made: list[T] = []
    raised: list[BaseException] = []
    is_over = threading.Lock()
    is_over.acquire()

    def make() -> None:
        try:
            with _turn_lock:
                made.append(call())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
            raised.append(error)
        finally:
            is_over.release()

    # A signal's exception in `start` may leave this thread waiting for ever, which must not hold up the program's end.
    thread = threading.Thread(target=make, name="lastlight-import", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # too many threads, or the interpreter is shutting down
        if thread.ident is not None:
            raise
        return call()
    # A signal just before a wait does not end the wait: Python would handle it only after the import.
    while not is_over.acquire(timeout=1):
        pass
    if raised:
        raise raised.pop()
    return made.pop()


def _renew() -> None:
    """Replace the lock in a forked child, because the thread that held it does not exist there."""
    global _turn_lock  # noqa: PLW0603
    _turn_lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def public(package: dict[str, Any], homes: Mapping[str, str], *own: str) -> None:
    """Give a package its public names: ``__all__``, and attributes that are loaded at their first use.

    ``package`` is its ``globals()``. ``homes`` maps modules, relative to the package, to the names that they define,
    separated by spaces. ``own`` are the public names that the package defines itself.
    """
    path = package["__name__"]
    home_of = {name: f"{path}.{home}" for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:  # noqa: N807 - the name that Python asks a module for (PEP 562)
        if name not in home_of:
            raise AttributeError(f"module {path!r} has no attribute {name!r}")
        value = package[name] = getattr(load(home_of[name]), name)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*package, *home_of})

    package.update(__getattr__=__getattr__, __dir__=__dir__, __all__=sorted({*home_of, *own}))


class Module:
    """A stand-in for a module. The module is imported when one of its attributes is first used."""

    def __init__(self, name: str) -> None:
        self._path = name

    def __getattr__(self, name: str) -> Any:
        return getattr(load(self._path), name)


class Part(Generic[T]):
    """An attribute whose value is imported and created at its first use, and then kept.

    ``home`` is the dotted path of the value's class. ``make`` creates the value from the owning object and the class.
    Without ``make``, the owner's method ``_make_part`` creates it from the class and the name.
    """

    def __init__(self, home: str, make: Callable[[Any, type[Any]], T] | None = None) -> None:
        self._module, _, self._class = home.rpartition(".")
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, whole: None, owner: type) -> Self: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: Any, owner: type) -> Self | T:
        if whole is None:
            return self
        part = whole._make_part(self.kind, self._name) if self._make is None else self._make(whole, self.kind)
        whole.__dict__[self._name] = part
        return cast(T, part)

    @property
    def kind(self) -> type[Any]:
        """Return the class of the attribute's value, importing it if needed."""
        return cast("type[Any]", getattr(load(self._module), self._class))
