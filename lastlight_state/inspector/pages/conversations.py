"""Conversations: sessions, branches as a tree with forks, each message once, and the branches that share it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from lastlight_state import View as Moment
from lastlight_state.conversations import BranchSummary, SessionFilter
from lastlight_state.conversations.words import STATUSES
from lastlight_state.inspector.page import MOST_ROWS, Ask, Page, View

page = Page("conversations", "Conversations", "/conversations", "v", personal=frozenset({"name", "owner"}))

#: Deepest level at which the tree of branches is still indented.
DEEPEST = 12


@page.look()
def session_list(ask: Ask) -> View:
    """Show a page of sessions."""
    where = SessionFilter(
        statuses=cast("Any", ask.texts("status")) or None,  # the library refuses an unknown status
        agent_name=ask.text("agent"),
        project=ask.text("project"),
        user=ask.text("user"),
        workflow_run_id=ask.text("run"),
        updated_since=ask.moment("since"),
    )
    with ask.store.view() as moment:
        data = {"sessions": moment.conversations.sessions.list(where=where, **ask.part)}
    return View("conversations.html", data, "Conversations", {"statuses": sorted(STATUSES)})


@page.look("/{session_id}", live=True, takes="limit page_token branches")
def session_page(ask: Ask) -> View:
    """Show a session: its branches as a tree, and a page of its messages, each once."""
    key, limit = ask.path["session_id"], ask.part["limit"]
    with ask.store.view() as moment:
        session = moment.conversations.sessions.get(key)
        branches = moment.conversations.branches.list(key, limit=MOST_ROWS, page_token=ask.text("branches"))
        progressions = moment.conversations.progressions
        links = progressions.ids(session.progression_id, limit=limit, page_token=ask.text("page_token"))
        data = {
            "session": session,
            "branches": {"next_page_token": branches.next_page_token, "damaged": branches.damaged},
            "outline": list(_outline(branches.items)),
            "links": links,
            "pool": _once(moment, [link.message_id for link in links.items]),
            "transitions": moment.conversations.lifecycle.history(key),
        }
    return View("conversation.html", data, f"Conversation {key}", {"deepest": DEEPEST})


@page.look("/branches/{branch_id}", live=True, takes="limit page_token forks")
def branch(ask: Ask) -> View:
    """Show a page of a branch's history, with the branch each message comes from, and the branch's forks."""
    key = ask.path["branch_id"]
    with ask.store.view() as moment:
        c = moment.conversations
        found = c.branches.get(key)
        data = {
            "branch": found,
            "ancestors": c.lineage.ancestors(key),
            "forks": c.lineage.forks(key, page_token=ask.text("forks")),
            "history": c.branches.history(key, **ask.part),
        }
    return View("branch.html", data, f"Branch {key}")


@page.look("/messages/{message_id}")
def message(ask: Ask) -> View:
    """Show a message, the branches that hold it, and the inboxes it was sent to."""
    key = ask.path["message_id"]
    with ask.store.view() as moment:
        c = moment.conversations
        data = {
            "message": c.messages.get(key).model_dump(exclude={"embedding"}),
            "uses": c.messages.uses(key, **ask.part),
            "deliveries": c.exchange.deliveries(key, page_token=ask.text("deliveries")),
        }
    return View("message.html", data, f"Message {key}")


def _once(moment: Moment, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages in the given order, each only once. Messages deleted meanwhile are left out."""
    found = moment.conversations.messages.get_many(list(dict.fromkeys(keys)))
    return [found[key].model_dump(exclude={"embedding"}) for key in dict.fromkeys(keys) if key in found]


def _outline(branches: Sequence[BranchSummary]) -> Iterator[dict[str, Any]]:
    """Yield the branches as an outline: each before its forks, with its depth below other branches of the page."""
    known = {one.id for one in branches}
    below: dict[str | None, list[BranchSummary]] = {}
    for one in branches:
        below.setdefault(one.parent_branch_id if one.parent_branch_id in known else None, []).append(one)
    waiting = [(one, 0) for one in below.pop(None, [])]
    while waiting:
        one, depth = waiting.pop()
        yield {"depth": depth, "branch": one}
        waiting += [(fork, depth + 1) for fork in below.pop(one.id, [])]
    for rest in below.values():  # circular ancestors, which only another program can have stored
        yield from ({"depth": 0, "branch": one} for one in rest)
