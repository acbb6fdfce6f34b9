"""specdeck: a terminal operations console for vLLM's speculative decoding."""

__version__ = "0.1.0"
