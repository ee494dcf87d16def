"""The pages, in the order of the navigation. They know nothing of one another."""

from lastlight_state.inspector.pages import cost, health, inbox, now, runs

PAGES = (now.page, runs.page, inbox.page, cost.page, health.page)
