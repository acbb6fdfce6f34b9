"""Everything specdeck does that a script could print; it knows nothing of terminals."""
