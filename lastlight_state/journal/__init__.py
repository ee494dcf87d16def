"""The journal: what happened in runs, in order."""
