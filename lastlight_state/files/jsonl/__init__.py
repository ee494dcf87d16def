"""Append-only line files: one JSON object per line, written whole, read tolerantly.

``writer`` appends under a lock and seals torn tails, ``reader`` streams records and counts what it cannot read,
``blocks`` reads without holding the file open between two blocks, ``tail`` reads backwards, ``follow`` reads on as a
file grows, ``cursor`` marks a place in a file that may be replaced.
``repair`` makes clean copies of damaged files, with an account of every byte that ``sections`` classifies.
"""
