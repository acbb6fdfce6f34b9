"""The terminal console and the command line."""
