"""Parts of tables: portable columns, indexes, guards, and the facts declared with each column."""
