"""How stored things are shown: as rows, as texts, in full."""
