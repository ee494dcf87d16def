"""Contract tests of ``store.conversations`` and ``store.messaging``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import ClaimLost, Conflict, InvalidValue, LostRace, NotFound, StaleVersion, StateStore
from lastlight_state.conversations import BranchTree, NewBranch, NewChunk, NewMessage, NewSession, SessionTree, Within
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh

# Chat


class MessagingContract:
    """Tests of ``store.messaging``."""

    def test_a_key_has_one_active_session_with_or_without_a_thread(self, store: StateStore) -> None:
        for thread in (None, "T1"):
            key = ConversationKey("slack", fresh("C"), "U1", thread)
            first, again = store.messaging.sessions.resume(key), store.messaging.sessions.resume(key)
            assert (first.created, again.created, again.session) == (True, False, first.session)

    def test_silence_starts_a_new_session(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        key = ConversationKey("slack", fresh("C"), "U1")
        first = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        frozen_clock.advance(timedelta(minutes=31))
        second = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        assert (second.created, second.replaced) == (True, first.session.id)
        assert store.messaging.sessions.get(first.session.id).deactivated_reason == "timeout"

    def test_messages_are_counted_in_their_order_and_a_redelivery_is_not_stored(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        drafts = [
            MessageDraft("user", "hello", "m1"),
            MessageDraft("assistant", "hi\n✓"),
            MessageDraft("user", "x", "m1"),
        ]
        stored = store.messaging.messages.append_many(session.id, drafts)
        assert [appended.created for appended in stored] == [True, True, False]
        assert [message.content for message in store.messaging.messages.history(session.id)] == ["hello", "hi\n✓"]
        assert store.messaging.sessions.get(session.id).message_count == 2

    def test_an_update_of_what_has_changed_is_refused(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        updated = store.messaging.sessions.update(session.id, version=session.version, title="Deploys")
        assert (updated.title, updated.version) == ("Deploys", session.version + 1)
        with pytest.raises(StaleVersion):
            store.messaging.sessions.update(session.id, version=session.version, title="Other")


class ConversationsContract:
    """Tests of ``store.conversations``."""

    def test_an_append_is_in_the_branch_and_in_the_pool(self, store: StateStore) -> None:
        c = store.conversations
        session = c.sessions.create()
        branch = c.branches.create(session.id, NewBranch(system=NewMessage("system", "be kind")))
        said = [NewMessage("user", {"text": "hi ✓"}), NewMessage("assistant", [{"type": "reasoning"}])]
        assert c.branches.append(branch.id, said).appended == 2
        assert c.branches.append(branch.id, said).skipped == 2
        told = c.branches.history(branch.id).items
        assert [(one.ord, one.message.content) for one in told] == list(enumerate(one.content for one in said))
        assert c.sessions.get(session.id).message_count == 3
        with pytest.raises(NotFound):
            c.branches.append(fresh("nobody"), said)

    def test_a_fork_shares_what_was_there_and_goes_its_own_way(self, store: StateStore) -> None:
        c = store.conversations
        branch = c.branches.create(c.sessions.create().id)
        c.branches.append(branch.id, [NewMessage("user", n) for n in range(4)])
        fork = c.lineage.fork(branch.id, at=2)
        c.branches.append(branch.id, [NewMessage("user", "later")])
        c.branches.append(fork.id, [NewMessage("user", "own")])
        assert [one.message.content for one in c.branches.history(fork.id)] == [0, 1, "own"]
        assert [one.message.content for one in c.branches.tail(branch.id, 2)] == [3, "later"]

    def test_an_order_is_replaced_unless_a_fork_needs_it(self, store: StateStore) -> None:
        c = store.conversations
        branch = c.branches.create(c.sessions.create().id)
        ids = [NewMessage("user", n) for n in range(3)]
        c.branches.append(branch.id, ids)
        c.lineage.fork(branch.id, at=1)
        order = c.progressions.get(branch.progression_id)
        first, second, third = c.progressions.collection(order.id)
        replaced = c.progressions.replace(order.id, [first, third, second], expect_version=order.version)
        assert c.progressions.collection(order.id) == [first, third, second]
        with pytest.raises(Conflict):
            c.progressions.replace(order.id, [second], expect_version=replaced.version)

    def test_a_session_ends_once_and_its_feed_says_so(self, store: StateStore) -> None:
        c = store.conversations
        session = c.sessions.create(NewSession(status="running"))
        ended = c.lifecycle.transition(session.id, "completed", expect="running")
        assert c.lifecycle.transition(session.id, "completed") == ended
        with pytest.raises(LostRace):
            c.lifecycle.transition(session.id, "failed")
        assert c.lifecycle.history(session.id).items[0] == ended
        assert c.lifecycle.state(session.id).outcome == "completed"
        assert [(one.seq, one.kind) for one in c.changes.after(session.id)] == [
            (1, "session.created"),
            (2, "status.changed"),
        ]
        assert c.changes.wait(session.id, 1, timeout=0).items == c.changes.after(session.id, 1).items

    def test_a_message_is_revised_under_its_id(self, store: StateStore) -> None:
        messages = store.conversations.messages
        new = messages.put(NewMessage("assistant", "grow", lion_class=fresh("my.Class"), embedding=[0.5]))
        grown = messages.put(NewMessage("assistant", "growing", id=new.id, lion_class=new.lion_class))
        assert (grown.revision, grown.embedding, grown.lion_class) == (1, None, new.lion_class)
        assert messages.get(new.id) == grown

    def test_a_tree_is_saved_once_and_loaded(self, store: StateStore) -> None:
        trees = store.conversations.trees
        branch = NewBranch(fresh("branch"), system=NewMessage("system", "be kind", created_at=1.25))
        said = [NewMessage("user", n, created_at=n + 0.5) for n in range(3)]
        tree = SessionTree(NewSession(fresh("session")), [BranchTree(branch, [*said, said[0]])])
        report = trees.save(tree)
        assert (report.messages_created, report.links_added) == (4, 4)
        assert list(trees.load(report.session_id).branches[0].messages) == [*said, said[0]]
        assert not trees.save(tree).changed

    def test_the_nearest_chunks_are_found_and_cleared(self, store: StateStore) -> None:
        vectors, namespace = store.conversations.vectors, fresh("vectors")
        chunks = [NewChunk(f"c{n}", f"text {n} ✓", [1, n], {"even": n % 2 == 0}, "doc", n) for n in range(4)]
        assert vectors.put(namespace, chunks) == vectors.put(namespace, chunks) == 4
        assert [hit.chunk.id for hit in vectors.search(namespace, [1, 0], top_k=2)] == ["c0", "c1"]
        [first, _] = vectors.search(namespace, [0, 1], where={"even": True})
        assert (first.chunk.id, first.chunk.content) == ("c2", "text 2 ✓")
        with pytest.raises(InvalidValue):
            vectors.search(namespace, [1, 0, 0])
        assert (vectors.clear(namespace, ids=["c0"]), vectors.clear(namespace, scope="namespace")) == (1, 3)

    def test_messages_near_to_a_vector_are_found_in_a_history(self, store: StateStore) -> None:
        c = store.conversations
        branch = c.branches.create(c.sessions.create().id)
        c.branches.append(branch.id, [NewMessage("user", n, embedding=[1, n]) for n in range(3)])
        fork = c.lineage.fork(branch.id, at=2)
        hits = c.messages.similar([1, 2], within=Within(branch_id=fork.id))
        assert [hit.message.content for hit in hits] == [1, 0]

    def test_what_is_sent_is_taken_by_one_reader_and_done_once(self, store: StateStore) -> None:
        exchange = store.conversations.exchange
        ana, bo, channel = fresh("ana"), fresh("bo"), fresh("news")
        letter = NewMessage("user", {"text": "hi ✓"}, sender=ana)
        assert exchange.send(letter, to=[ana, bo]).delivered == tuple(sorted([ana, bo]))
        assert exchange.send(letter, to=bo).skipped == (bo,)
        exchange.join(channel, bo)
        published = exchange.publish(NewMessage("user", "later", sender=ana), channel=channel)
        assert [one.ord for one in exchange.inbox(bo)] == [0, 1]
        assert [one.message_id for one in exchange.take(bo, reader="r1")] == [letter.id]
        assert [one.message_id for one in exchange.take(bo, reader="r2", limit=9)] == [published.message_id]
        with pytest.raises(ClaimLost):
            exchange.ack(bo, [0, 1], reader="r1")
        assert (exchange.ack(bo, 0, reader="r1"), exchange.ack(bo, 0, reader="r1")) == (1, 0)
        assert exchange.release(bo, 1, reader="r2") == 1
        assert exchange.wait(bo, 0, timeout=0).items[0].takes == 1
