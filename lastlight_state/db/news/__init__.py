"""Notifications: watches that look for changes, callbacks for events, and leases that are renewed."""
