"""vLLM's general plugin: adds specdeck's methods to the engine core and the workers.

vLLM runs this in every one of its processes, several times in some; nothing changes for
an engine until the endpoint plugin first calls the engine core, but for the tiers of
specdeck's own, by which no scheduler may go.
"""

from __future__ import annotations

import logging
from typing import Any

from specdeck.engine.plugin import placeholder_tiers

logger = logging.getLogger("vllm.specdeck")


def register() -> None:
    """The `vllm.general_plugins` entry point; safe to call again.

    A plugin that fails must not keep an engine from starting: the console asks whether
    the plugin answers and names what is missing.
    """
    try:
        from vllm.v1.core.sched.scheduler import Scheduler

        placeholder_tiers.withdraw(Scheduler)  # first: what follows may fail
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.worker.worker_base import WorkerBase

        from specdeck.engine.plugin.control import answer_call

        EngineCore.specdeck = answer_call
        WorkerBase.specdeck_worker = _on_worker
    except Exception:
        logger.exception("specdeck could not start; the engine runs without it")


def _on_worker(worker: Any, command: str, *args: Any) -> Any:
    """The worker's method for `collective_rpc`."""
    from specdeck.engine.plugin import drafters

    if command == "install":
        return drafters.install(worker)
    if command == "facts":
        from specdeck.engine.plugin import fingerprint

        return fingerprint.worker_facts(worker)
    return drafters.skip(worker, *args)
