"""The central schema as a whole: which revision a database is at, and how it comes to the newest."""
