"""Shared base of the two kinds of questions to people, `approvals` and `human_requests`."""
