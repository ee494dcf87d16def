"""What several repositories of this domain share: rows, the fence, transitions, and what belongs to a run."""
