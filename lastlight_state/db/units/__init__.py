"""Units of work: where they run, how they end, and how they join a transaction of the caller."""
