"""specdeck: a flight deck for vLLM's speculative decoding."""

__version__ = "0.1.0"
