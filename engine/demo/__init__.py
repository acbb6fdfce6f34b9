"""The small model pair of the demo: its training, its deepening and the load put on it."""
