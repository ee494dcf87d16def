"""Rows and the statements about them: compiled once, parameters checked, results as records."""
