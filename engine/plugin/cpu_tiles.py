"""Asks Linux for the tile registers of a CPU, which vLLM's attention uses without having asked.

Linux ends a process by SIGILL that uses AMX's tiles without permission. oneDNN asks for it, but
not before its first large product; the attention of vLLM's CPU build (0.32.0) takes tiles wherever
the CPU has them. So the worker of a fresh engine ended at a first prompt of four tokens.
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("vllm.specdeck")


def permit_tiles(torch: Any) -> bool:
    """Has this process permitted to use tiles; whether they are there and it was.

    Where `torch`, the module, is built for a CPU alone. Safe to call again.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return False
    found = getattr(torch.cpu, "_is_amx_tile_supported", None)
    permit = getattr(torch.cpu, "_init_amx", None)
    if found is None or permit is None or not found():
        return False
    permitted = bool(permit())
    if not permitted:
        logger.warning("this process may not use the CPU's tiles (AMX), which vLLM may try to")
    return permitted
