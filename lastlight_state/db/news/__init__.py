"""What others are told: watches that look for changes, listeners, and leases that are renewed."""
