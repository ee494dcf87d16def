from __future__ import annotations

from support.cli.calls import lastlight_state
from support.conversations.talk import begun

from lastlight_state.testing.databases import Database


def test_sessions_are_listed_and_shown_with_their_branches(database: Database) -> None:
    """conversations CV-5: the last updated first, with the size of the pool."""
    with database.open() as store:
        branch = begun(store, "a", "b")
        fork = store.conversations.lineage.fork("main", at=1, name="try")
    listed = lastlight_state("ls", "sessions", "--url", database.url, "--json")
    [item] = listed.data["items"]
    assert (item["id"], item["message_count"], item["branch_count"]) == (branch.session_id, 2, 2)
    shown = lastlight_state("show", "session", branch.session_id, "--url", database.url)
    assert (shown.code, fork.id in shown.out, "try" in shown.out) == (0, True, True)
    since = lastlight_state("ls", "sessions", "--since", "1d", "--url", database.url)
    assert since.code == 0
    running = lastlight_state("ls", "sessions", "--status", "running", "--url", database.url, "--json")
    assert (running.code, running.data["items"]) == (0, [])
    refused = lastlight_state("ls", "sessions", "--status", "later", "--url", database.url)
    assert (refused.code, "statuses" in refused.err) == (2, True)
