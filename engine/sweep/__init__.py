"""A sweep over k on a live engine: steered under a lease, measured by the engine's own steps."""
