"""Adapters that implement other frameworks' store interfaces over this library.

Each is a module that needs its own extra. This package loads none of them by itself.
"""
