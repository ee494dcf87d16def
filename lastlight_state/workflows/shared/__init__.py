"""Code that several repositories of this domain share: rows, the fence, transitions, and the parts of a run."""
