"""The start of an engine, followed to its end."""
