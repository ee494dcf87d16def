"""Stores of other frameworks' interfaces, each a module of its own that needs its extra. Nothing here loads them."""
