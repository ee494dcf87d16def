"""How stored records are shown: as rows, as text, in full."""
