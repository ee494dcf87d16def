"""Parts of tables: portable columns, indexes, guards, and the facts that each column declares."""
