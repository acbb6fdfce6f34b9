"""From vLLM's /metrics page to rates over a stretch of time."""
