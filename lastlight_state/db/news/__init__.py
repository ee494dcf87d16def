"""Notifications: watches that poll for changes, callbacks for events, and leases that are renewed."""
