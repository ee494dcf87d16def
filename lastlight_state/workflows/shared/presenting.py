"""Add a claim to a repository's engine writes, so that a block that drives a run need not pass it each time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from lastlight_state.workflows.arguments import Claim

R = TypeVar("R")


def with_claim(repository: R, claim: Claim) -> R:
    """Make the engine writes of a repository pass this claim by default. Returns the same repository.

    A call that names another run gets no claim, because the claim belongs to its own run only.
    """
    kind: Any = type(repository)
    for name, place in _engine_writes(kind):
        setattr(repository, name, _pass_claim(getattr(repository, name), place, claim))
    return repository


def _pass_claim(method: Callable[..., Any], place: int | None, claim: Claim) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("claim") is None and _is_of_run(claim.run_id, place, args, kwargs):
            kwargs["claim"] = claim
        return method(*args, **kwargs)

    return call


def _is_of_run(run_id: str, place: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if a call names the claim's run or no run. Without one, the database finds the run of the given row."""
    if place is None:
        return True
    return (args[place] if place < len(args) else kwargs.get("run_id")) == run_id


@cache
def _engine_writes(kind: type[Any]) -> tuple[tuple[str, int | None], ...]:
    """Return the names of methods with an optional ``claim``, each with the position of ``run_id``, or None."""
    found = []
    for name in dir(kind):
        method = getattr(kind, name)
        if name.startswith("_") or not isfunction(method):
            continue
        parameters = list(signature(method).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        if "claim" in names and parameters[names.index("claim")].default is None:
            found.append((name, names.index("run_id") if "run_id" in names else None))
    return tuple(found)
