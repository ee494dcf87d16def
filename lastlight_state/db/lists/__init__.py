"""Lists: declared with their filters and order, and read page by page."""
