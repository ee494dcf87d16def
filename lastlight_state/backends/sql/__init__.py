"""SQL expressions that each database writes in its own way."""
