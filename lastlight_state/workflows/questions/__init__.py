"""Questions to people, of both kinds: `approvals` and `human_requests` are built from these."""
