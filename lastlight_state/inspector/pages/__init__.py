"""The pages, in the order of the navigation. No page depends on another."""

from lastlight_state.inspector.pages import (
    conversations,
    cost,
    health,
    inbox,
    mailboxes,
    now,
    runs,
    schedules,
    transcripts,
)

PAGES = (
    now.page,
    runs.page,
    transcripts.page,
    conversations.page,
    inbox.page,
    cost.page,
    schedules.page,
    mailboxes.page,
    health.page,
)
