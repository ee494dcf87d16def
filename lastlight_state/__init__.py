"""The durable state layer for agent systems."""

__version__ = "0.1.0"
