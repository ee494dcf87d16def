"""The library's own tests use the plugin that it ships, and pytest's own for tests of that plugin."""

pytest_plugins = ["pytester"]
