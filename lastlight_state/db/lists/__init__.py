"""Lists: each declares its filters and its order, and is read page by page."""
