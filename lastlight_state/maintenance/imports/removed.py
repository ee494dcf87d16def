"""Finds branches and messages of a session that were imported once and then removed in the store.

They are not imported again. A deleted branch is not imported again with its new forks either, and a message that was
removed from an order is not added to it again. This also holds after imports in which the source lacked the part. An
emptied text and a removed name are never restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from lastlight_state.conversations.trees.plans import BranchPlan, Plan
from lastlight_state.maintenance.imports import brought, drafts as sql
from lastlight_state.maintenance.imports.drafts import ImportedVersions, Pool
from lastlight_state.maintenance.imports.pieces import UnitLookup


class RemovedParts:
    """The parts of a session that were removed in the store: ``branches``, with their forks, and ``messages``.

    ``left`` has the messages that only removed branches have. ``before`` has what the last import recorded, and
    ``here`` the stored branches.
    """

    def __init__(self, before: ImportedVersions, plan: Plan, here: Collection[str], pool: Pool | None) -> None:
        self._orders = {"": brought.leading_ids(() if pool is None else pool.ids, before.source.get(""))}
        self.branches: set[str] = set()
        self.messages: set[str] = set()
        for branch in plan.branches:  # parents come before their forks
            branch_id, parent = branch.row["id"], branch.origin and branch.origin[0]
            self._orders[branch_id] = brought.leading_ids(branch.order, before.source.get(branch_id))
            if branch_id not in here and (branch_id in before.source or parent in self.branches):
                self.branches.add(branch_id)
        self.plan = replace(plan, branches=[one for one in plan.branches if one.row["id"] not in self.branches])
        going = [one for one in plan.branches if one.row["id"] in self.branches]
        all_ids: Sequence[str] = () if pool is None else pool.ids
        self._placed = _of(self.plan.branches) | set(all_ids)
        orders: dict[str, Sequence[str]] = {one.row["id"]: one.order for one in plan.branches}
        orders[""] = all_ids
        self._shorter = {one for one, had in before.source.items() if len(orders.get(one, ())) < had[0]}
        self._absent: Collection[str] = ()
        self.left = _of(going) - self._placed

    def note_absent(self, absent: Collection[str]) -> None:
        """Set ``messages`` to the messages that were removed in the store.

        ``absent`` are all messages that are not stored.
        """
        self._absent, systems = absent, {branch.system for branch in self.plan.branches}
        self.messages = set().union(*self._orders.values()) & set(absent) - systems
        if self._shorter:  # nobody knows if a message in no order now was removed here
            self.messages |= set(absent) - self._placed - systems

    def order(self, name: str, given: Sequence[str], stored: Sequence[str], *, is_as_left: bool) -> list[str]:
        """Return an order without messages that were removed from it in the store.

        ``name`` is the branch's id, or empty for the order of all messages.
        """
        begun: Sequence[str] = () if is_as_left else self._orders.get(name, ())
        known = set(begun) - set(stored)
        if name in self._shorter and not is_as_left:  # its messages were here before, except new ones
            known = set(given) - set(stored) - set(self._absent)
        elif not known.isdisjoint(given[len(begun) :]):  # the source added the message again: a conflict
            known = set()
        return [one for one in given if one not in known and one not in self.messages]


def may_change(
    look: UnitLookup, progression_id: str, base: ImportedVersions, stored: Sequence[str], given: Sequence[str]
) -> bool:
    """True if an order may be replaced by the source's order, and not only get longer.

    That is so if nobody has changed the order since the last import. It is also so if the order only lacks messages
    that were removed in the store, and these are to be revived.
    """
    rest = iter(given)
    if look.revives and all(one in rest for one in stored):
        return True
    return bool(look.view.value(sql.ORDER_VERSION, {"id": progression_id}) == base.orders.get(progression_id))


def _of(branches: Iterable[BranchPlan]) -> set[str]:
    return {one for branch in branches for one in branch.bodies}
