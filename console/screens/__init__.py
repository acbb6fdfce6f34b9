"""Screens: they compose widgets, bind values and follow an engine."""
