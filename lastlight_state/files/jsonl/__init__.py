"""Append-only line files: one JSON object per line, written whole; readers skip damage.

``writer`` appends under a lock and ends torn last lines, ``reader`` streams records and counts unreadable lines,
``follow`` yields new records as a file grows, and ``cursor`` marks positions, reads without holding the file open
between two blocks, and reads backwards. ``repair`` makes clean copies of damaged files, in which every byte is
accounted for as ``sections`` classifies it.
"""
