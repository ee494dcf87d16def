"""Units of work: where they run, how they end, and how they join a caller's transaction."""
