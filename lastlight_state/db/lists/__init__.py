"""Lists: each is declared with its filters and order, and read page by page."""
