"""Widgets: reactives in, messages out; they know view values, not engines."""
