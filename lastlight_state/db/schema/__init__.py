"""What tables are made of: portable columns, indexes, guards, and what each column declares of itself."""
