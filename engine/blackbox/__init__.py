"""The recorder on disk: what was known of an engine, second by second, for days."""
