"""Policies that choose k: pure state machines, used by the plugin."""
