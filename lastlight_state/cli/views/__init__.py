"""Views of stored records: as table rows, as text, and in full."""
