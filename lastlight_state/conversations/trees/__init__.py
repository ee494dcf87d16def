"""Session trees: whole sessions, with their branches and messages, saved and loaded in one call."""

from __future__ import annotations

from collections import Counter
from functools import partial

from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import SessionTree
from lastlight_state.conversations.records import SaveReport
from lastlight_state.conversations.shared import sessions, storing
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.trees import plans, saving
from lastlight_state.conversations.trees.plans import plan_of
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository


class Trees(Repository):
    """``store.conversations.trees``"""

    def save(self, tree: SessionTree, *, mode: words.SaveMode = "grow") -> SaveReport:
        """Store the parts of a session tree that the database lacks. Saving the same tree again writes nothing.

        The session is found by its id, or else by the id of any of its branches, and the tree is then added to it. New
        messages are appended, changed messages are revised, and a different system message replaces the old one. Fields
        that the tree leaves out stay. A tree has at most 50,000 messages. Up to 1,000 messages are saved in one
        transaction, more in one transaction for each branch.

        Raises `StaleVersion` if a branch of the tree lacks stored messages or has them in another order, unless
        ``mode`` is ``"replace"``. Raises `Conflict` ``fork_prefix`` for a change of positions that a fork has
        inherited, `AlreadyExists` for a branch of another session or of another origin, and `NotFound` for a parent
        that is not stored.
        """
        now = self._now()
        plan = plan_of(tree, now)
        replaces = valid.word("mode", mode, words.SAVE_MODES) == "replace"
        known = self._remember(KnownClasses)
        found: Counter[str] = Counter()
        whole = saving.TreeSave(plan, self._listeners, known, now, replaces=replaces)
        session_id = ""
        for some in plan.parts(words.BATCH):
            work = partial(whole.part, some=some, locks=sessions.Locks())
            session_id, done = storing.retry_storing(partial(self._writing, work, repeatable=True))
            found += done
        return SaveReport.of(saving.report(session_id, found))

    def load(self, session_id: str, *, max_messages: int = words.TREE) -> SessionTree:
        """Return a whole session as a tree. Forks include inherited messages.

        Messages that are only in the pool are left out. Raises `NotFound`, and `PayloadTooLarge` if the branches
        together have more than ``max_messages`` messages.
        """
        found = valid.lookup_text("session_id", session_id)
        most = valid.number("max_messages", max_messages, most=words.TREE)
        return self._viewing(lambda unit: plans.tree(unit, found, most))
