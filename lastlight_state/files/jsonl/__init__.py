"""Append-only line files: one JSON object per line, written whole; readers skip damage.

``writer`` appends under a lock and ends torn last lines, ``reader`` streams records and counts unreadable lines,
``blocks`` reads without holding the file open between two blocks, ``tail`` reads backwards, ``follow`` reads on as a
file grows, ``cursor`` marks a position in a file that may be replaced. ``repair`` makes clean copies of damaged files,
with an account of every byte, which ``sections`` classifies.
"""
