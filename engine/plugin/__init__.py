"""What runs inside vLLM: the standard library and vLLM only, and nothing at import time."""
