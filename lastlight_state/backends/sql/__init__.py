"""SQL expressions that are written differently for each database product."""
