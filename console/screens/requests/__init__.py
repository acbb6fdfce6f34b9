"""What runs in an engine right now, and what has finished."""
