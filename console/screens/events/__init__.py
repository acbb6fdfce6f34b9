"""Everything that happened to an engine, to scroll through and to search."""
