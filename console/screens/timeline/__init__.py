"""Time on every screen: which moment is shown, the lane of events, a moment asked for."""
