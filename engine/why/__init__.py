"""Why acceptance or speed is low: causes ranked, with intervals, and what was ruled out."""
