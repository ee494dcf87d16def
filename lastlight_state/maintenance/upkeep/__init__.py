"""Work on the store as a whole: sizes, counters, vacuum, repair, keys and dead sessions."""
