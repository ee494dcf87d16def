"""The pages, in the order of the navigation. They know nothing of one another."""

from lastlight_state.inspector.pages import inbox, now, runs

PAGES = (now.page, runs.page, inbox.page)
