"""Rows, and the statements that read and write them: compiled once, with checked parameters and records as results."""
