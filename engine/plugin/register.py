"""vLLM's general plugin: adds specdeck's methods to the engine core and the workers.

vLLM runs this in every one of its processes, several times in some. It takes the placeholder
tiers from every scheduler; nothing else changes for an engine until the endpoint plugin first
calls the engine core.

Placeholder tiers are the k's by batch size that specdeck has an engine started with. The launcher
names every k once, so that vLLM captures CUDA graphs for each: one request would run at k = 0,
two at k = 1. No scheduler may go by them, whether or not the plugin takes hold of the engine later,
so they are taken from it as it is made. The configuration keeps them, since the workers capture
by it.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import Any

from specdeck.engine.plugin.log_mask import mask_logs
from specdeck.engine.plugin.secret_values import list_values
from specdeck.engine.plugin.start_time import note_start
from specdeck.engine.protocol.messages import TIERS_VARIABLE

logger = logging.getLogger("vllm.specdeck")

_WRAPPED = "_specdeck_withdraws_tiers"


def register() -> None:
    """The `vllm.general_plugins` entry point; safe to call again.

    A plugin that fails must not keep an engine from starting: the console asks whether
    the plugin answers and names what is missing.
    """
    try:
        note_start()
        mask_logs()
        list_values()  # their file is gone when facts are read
        from vllm.v1.core.sched.scheduler import Scheduler

        withdraw_placeholder_tiers(Scheduler)  # first: what follows may fail
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.worker.worker_base import WorkerBase

        from specdeck.engine.plugin.control import answer_call

        EngineCore.specdeck = answer_call
        WorkerBase.specdeck_worker = _on_worker
        _permit_tiles()
    except Exception:
        logger.exception("specdeck could not start; the engine runs without it")


def _permit_tiles() -> None:
    import torch

    from specdeck.engine.plugin.cpu_tiles import permit_tiles

    permit_tiles(torch)


def withdraw_placeholder_tiers(
    scheduler: type[Any], environment: Mapping[str, str] = os.environ
) -> None:
    """Has every scheduler of this class, or one made of it, come without them.

    It then drafts k_max tokens, as vLLM does without a schedule. An operator's own schedule
    is left alone. Where EngineCore is made in a process of its own, vLLM loads plugins when
    its constructor is under way already; the scheduler is made after that.
    """
    if hasattr(scheduler, _WRAPPED):
        return
    make = scheduler.__init__

    @functools.wraps(make)
    def make_without_tiers(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if TIERS_VARIABLE in environment and getattr(self, "dynamic_sd_lookup", None) is not None:
            self.dynamic_sd_lookup = None

    scheduler.__init__ = make_without_tiers
    setattr(scheduler, _WRAPPED, True)


def _on_worker(worker: Any, command: str, *args: Any) -> Any:
    """The worker's method for `collective_rpc`."""
    from specdeck.engine.plugin import drafters, logprob_ranks, null_block

    if command == "keep":
        return null_block.keep(worker, *args)
    if command == "restore":
        return null_block.restore(worker)
    if command == "install":
        logprob_ranks.install(worker)
        # The engine core asks Linux how long it waited for a CPU.
        return {**drafters.install(worker), "pid": os.getpid()}
    if command == "facts":
        from specdeck.engine.plugin import fingerprint

        return fingerprint.worker_facts(worker, *args)
    return drafters.skip(worker, *args)
